// Runs models that Quench has compiled, from C++17: one header over quench_rt.h.
//
//   auto model = quench::Model::Open("model.so");
//   if (!model) return std::puts(model.error().message.c_str());
//   auto session = model->NewSession();
//   if (!session->SetInput("image", quench::View<const float>(pixels, {1, 1, 8, 8}))) return 1;
//   if (!session->Run()) return 1;
//   auto logits = session->Output<float>("logits");  // a view, valid until the next run
//
// Nothing here throws: what can fail returns a Result, which is [[nodiscard]]. Models and sessions are
// moved, not copied, and free what they own. A model may be used from any number of threads, and must
// outlive its sessions; a session from one at a time.
#ifndef QUENCH_COMMON_RUNTIME_QUENCH_HPP_
#define QUENCH_COMMON_RUNTIME_QUENCH_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/runtime/quench_rt.h"

namespace quench {

struct Error {
  int code = QUENCH_RT_OK;  // QUENCH_RT_*
  std::string message;      // one sentence
};

// A value or an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: as a value
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: as an error

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Only of a result that is ok.
  T& operator*() & { return *std::get_if<0>(&state_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&state_)); }
  const T& operator*() const& { return *std::get_if<0>(&state_); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  // Only of one that is not.
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: as an error
  bool ok() const { return error_.code == QUENCH_RT_OK; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// 16-bit floats by their bits.
struct Float16 {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

// ONNX's numbers of element types.
template <typename T>
inline constexpr std::int32_t kDType = 0;
template <>
inline constexpr std::int32_t kDType<float> = 1;
template <>
inline constexpr std::int32_t kDType<std::uint8_t> = 2;
template <>
inline constexpr std::int32_t kDType<std::int8_t> = 3;
template <>
inline constexpr std::int32_t kDType<std::uint16_t> = 4;
template <>
inline constexpr std::int32_t kDType<std::int16_t> = 5;
template <>
inline constexpr std::int32_t kDType<std::int32_t> = 6;
template <>
inline constexpr std::int32_t kDType<std::int64_t> = 7;
template <>
inline constexpr std::int32_t kDType<bool> = 9;
template <>
inline constexpr std::int32_t kDType<Float16> = 10;
template <>
inline constexpr std::int32_t kDType<double> = 11;
template <>
inline constexpr std::int32_t kDType<std::uint32_t> = 12;
template <>
inline constexpr std::int32_t kDType<std::uint64_t> = 13;
template <>
inline constexpr std::int32_t kDType<BFloat16> = 16;

// Elements of a dense, row-major tensor that somebody else owns.
template <typename T>
class View {
 public:
  View(T* data, std::size_t size, std::vector<std::int64_t> dims)
      : data_(data), size_(size), dims_(std::move(dims)) {}
  // A view of anything with data() and size(): std::vector, std::array, std::span.
  template <typename Container>
  View(Container& elements, std::vector<std::int64_t> dims)
      : View(elements.data(), elements.size(), std::move(dims)) {}

  T* data() const { return data_; }
  std::size_t size() const { return size_; }  // elements
  const std::vector<std::int64_t>& dims() const { return dims_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_;
  std::size_t size_;
  std::vector<std::int64_t> dims_;
};

// An input or an output as the model declares it.
struct TensorInfo {
  std::string name;
  std::int32_t dtype = 0;          // ONNX's number
  std::vector<std::int64_t> dims;  // -1: a size that inputs decide, or that only a run knows
};

namespace internal {

inline Error ErrorOf(int code, const quench_rt_error& error) { return {code, error.text}; }

struct CloseModel {
  void operator()(quench_rt_model* model) const { quench_rt_close(model); }
};
struct FreeSession {
  void operator()(quench_rt_session* session) const { quench_rt_session_free(session); }
};

inline std::vector<TensorInfo> Describe(const quench_tensor_info* const* infos,
                                        std::uint32_t count) {
  std::vector<TensorInfo> result;
  for (std::uint32_t i = 0; i < count; ++i) {
    TensorInfo info{infos[i]->name, infos[i]->dtype, {}};
    for (std::int32_t axis = 0; axis < infos[i]->rank; ++axis)
      info.dims.push_back(infos[i]->dims[axis].value);
    result.push_back(std::move(info));
  }
  return result;
}

// The index of `name`, or an error that lists the names there are.
inline Result<std::uint32_t> IndexOf(const char* what, std::string_view name,
                                     const quench_tensor_info* const* infos, std::uint32_t count) {
  std::string names;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (name == infos[i]->name) return i;
    names += (names.empty() ? "`" : ", `") + std::string(infos[i]->name) + "`";
  }
  return Error{QUENCH_RT_INVALID, std::string("there is no ") + what + " `" + std::string(name) +
                                      "`, the model has " + names};
}

inline std::string ShapeText(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace internal

struct SessionOptions {
  std::uint32_t threads = 0;  // 0: as many as the library's target says, at most quench_rt_cpus(), or one
  std::uint64_t rng_seed = 0;
  std::string device;  // "cpu", "cuda", "cuda:1"; empty: the first GPU if there is code for it, or the CPU
  void* stream = nullptr;  // a CUstream of the device's primary context; nullptr: the session's own
};

// One place to run a model.
class Session {
 public:
  // Reads the elements where they lie: they must stay until the run is over. States need not be set.
  template <typename T>
  Result<void> SetInput(std::string_view name, const View<T>& view) {
    const auto index = internal::IndexOf("input", name, model_->inputs, model_->num_inputs);
    if (!index) return index.error();
    return SetInput(*index, view);
  }
  template <typename T>
  Result<void> SetInput(std::uint32_t index, const View<T>& view) {
    return Bind(index, view, quench_rt_set_input);
  }

  // The same with memory of the session's device, which is not copied. The elements must be complete when
  // Run is called, or written by earlier work of the session's stream.
  template <typename T>
  Result<void> SetDeviceInput(std::string_view name, const View<T>& view) {
    const auto index = internal::IndexOf("input", name, model_->inputs, model_->num_inputs);
    if (!index) return index.error();
    return SetDeviceInput(*index, view);
  }
  template <typename T>
  Result<void> SetDeviceInput(std::uint32_t index, const View<T>& view) {
    return Bind(index, view, quench_rt_set_device_input);
  }
  // Memory of the device for an output of later runs; nullptr: memory of the session.
  Result<void> SetDeviceOutput(std::string_view name, void* data, std::size_t bytes) {
    const auto index = internal::IndexOf("output", name, model_->outputs, model_->num_outputs);
    if (!index) return index.error();
    return SetDeviceOutput(*index, data, bytes);
  }
  Result<void> SetDeviceOutput(std::uint32_t index, void* data, std::size_t bytes) {
    return Called([&](quench_rt_error* error) {
      return quench_rt_set_device_output(session_.get(), index, data, bytes, error);
    });
  }

  // Threads for later runs; 0: as many as the session began with.
  Result<void> SetThreads(std::uint32_t threads) {
    return Called([&](quench_rt_error* error) {
      return quench_rt_set_threads(session_.get(), threads, error);
    });
  }

  Result<void> Run() {
    return Called([&](quench_rt_error* error) { return quench_rt_run(session_.get(), error); });
  }

  // An output of the last run. The elements stay until the next run, or until states are reset; they are in
  // the device's memory if the output is bound to it.
  template <typename T>
  Result<View<const T>> Output(std::string_view name) const {
    const auto index = internal::IndexOf("output", name, model_->outputs, model_->num_outputs);
    if (!index) return index.error();
    return Output<T>(*index);
  }
  template <typename T>
  Result<View<const T>> Output(std::uint32_t index) const {
    static_assert(kDType<T> != 0, "tensors have no such element type");
    quench_rt_tensor tensor{};
    quench_rt_error error;
    if (const int code = quench_rt_get_output(session_.get(), index, &tensor, &error);
        code != QUENCH_RT_OK)
      return internal::ErrorOf(code, error);
    if (tensor.dtype != kDType<T>) {
      return Error{QUENCH_RT_INVALID, std::string("output `") + model_->outputs[index]->name +
                                          "` is " + quench_rt_dtype_name(tensor.dtype) +
                                          ", asked for as " + quench_rt_dtype_name(kDType<T>)};
    }
    std::vector<std::int64_t> dims(tensor.dims, tensor.dims + tensor.rank);
    std::size_t count = 1;
    for (const std::int64_t dim : dims) count *= dim < 0 ? 0 : static_cast<std::size_t>(dim);
    return View<const T>(static_cast<const T*>(tensor.data), tensor.data == nullptr ? 0 : count,
                         std::move(dims));
  }

  // The next run begins with the model's initial states.
  void ResetStates() { quench_rt_reset_states(session_.get()); }
  // Ends the run in progress between two nodes: the only call for another thread.
  void Cancel() { quench_rt_cancel(session_.get()); }
  // "cpu", or "cuda:0", then a space and the GPU's name.
  std::string device() const { return quench_rt_device(session_.get()); }
  // The CUstream to which runs add their work; nullptr on the CPU.
  void* stream() const { return quench_rt_stream(session_.get()); }
  quench_rt_session* get() const { return session_.get(); }

 private:
  friend class Model;
  Session(quench_rt_session* session, const quench_model* model)
      : session_(session), model_(model) {}

  template <typename Call>
  static Result<void> Called(const Call& call) {
    quench_rt_error error;
    const int code = call(&error);
    if (code != QUENCH_RT_OK) return internal::ErrorOf(code, error);
    return {};
  }

  template <typename T, typename Function>
  Result<void> Bind(std::uint32_t index, const View<T>& view, Function* bind) {
    using Element = std::remove_const_t<T>;
    static_assert(kDType<Element> != 0, "tensors have no such element type");
    std::size_t count = 1;
    for (const std::int64_t dim : view.dims()) {
      const bool fits = dim >= 0 && (dim == 0 || count <= SIZE_MAX / static_cast<std::size_t>(dim));
      if (!fits) return Wrong(index, view.dims(), view.size());
      count *= static_cast<std::size_t>(dim);
    }
    if (count != view.size()) return Wrong(index, view.dims(), view.size());
    quench_rt_tensor tensor{const_cast<Element*>(view.data()), view.dims().data(), kDType<Element>,
                            static_cast<std::int32_t>(view.dims().size())};
    return Called(
        [&](quench_rt_error* error) { return bind(session_.get(), index, &tensor, error); });
  }

  Result<void> Wrong(std::uint32_t index, const std::vector<std::int64_t>& dims,
                     std::size_t size) const {
    const std::string name =
        index < model_->num_inputs ? model_->inputs[index]->name : std::to_string(index);
    return Error{QUENCH_RT_INVALID, "input `" + name + "`: there are " + std::to_string(size) +
                                        " elements for the shape " + internal::ShapeText(dims)};
  }

  std::unique_ptr<quench_rt_session, internal::FreeSession> session_;
  const quench_model* model_;
};

// A compiled library.
class Model {
 public:
  static Result<Model> Open(const std::string& path) {
    return Opened([&](quench_rt_model** model, quench_rt_error* error) {
      return quench_rt_open_file(path.c_str(), model, error);
    });
  }
  // From memory, which is not needed afterwards.
  static Result<Model> FromMemory(const void* data, std::size_t size) {
    return Opened([&](quench_rt_model** model, quench_rt_error* error) {
      return quench_rt_open_memory(data, size, model, error);
    });
  }
  // `key_path`: modelKey.bin, which `password` opens, or a file with an age identity (nullptr).
  static Result<Model> OpenEncrypted(const std::string& path, const std::string& key_path,
                                     const char* password) {
    return Opened([&](quench_rt_model** model, quench_rt_error* error) {
      return quench_rt_open_encrypted(path.c_str(), key_path.c_str(), password, model, error);
    });
  }
  // One that is linked into the program.
  static Result<Model> OpenLinked(quench_model_query_fn query) {
    return Opened([&](quench_rt_model** model, quench_rt_error* error) {
      return quench_rt_open_linked(query, model, error);
    });
  }

  Result<Session> NewSession(const SessionOptions& options = {}) const {
    quench_rt_options asked{};
    asked.size = sizeof asked;
    asked.num_threads = options.threads;
    asked.rng_seed = options.rng_seed;
    asked.device = options.device.empty() ? nullptr : options.device.c_str();
    asked.stream = options.stream;
    quench_rt_session* session = nullptr;
    quench_rt_error error;
    if (const int code = quench_rt_session_create(model_.get(), &asked, &session, &error);
        code != QUENCH_RT_OK)
      return internal::ErrorOf(code, error);
    return Session(session, quench_rt_describe(model_.get()));
  }

  std::string name() const { return about().name; }
  std::string uuid() const { return about().uuid; }
  std::string fingerprint() const { return about().fingerprint; }
  std::string variant() const { return quench_rt_variant(model_.get())->name; }
  std::vector<TensorInfo> inputs() const {
    return internal::Describe(about().inputs, about().num_inputs);
  }
  std::vector<TensorInfo> outputs() const {
    return internal::Describe(about().outputs, about().num_outputs);
  }
  const quench_model& about() const { return *quench_rt_describe(model_.get()); }

 private:
  explicit Model(quench_rt_model* model) : model_(model) {}

  template <typename Call>
  static Result<Model> Opened(const Call& call) {
    quench_rt_model* model = nullptr;
    quench_rt_error error;
    const int code = call(&model, &error);
    if (code != QUENCH_RT_OK) return internal::ErrorOf(code, error);
    return Model(model);
  }

  std::unique_ptr<quench_rt_model, internal::CloseModel> model_;
};

}  // namespace quench

#endif  // QUENCH_COMMON_RUNTIME_QUENCH_HPP_
