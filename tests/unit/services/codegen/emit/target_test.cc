// Objects for every target: no kernel needs a library.
#include <gtest/gtest.h>

#include <set>

#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/emit/harness.h"

namespace quench::codegen::target_test {
namespace {

using loops::B;
using loops::BinaryOp;
using loops::Builder;
using loops::E;
using loops::UnaryOp;

// Every operation and conversion on every element type, in one function.
loops::Function Everything(DataType type) {
  Builder b("everything");
  const E n = b.I(100);
  const B x = b.Input("x", type, {n});
  const B y = b.Input("y", type, {n});
  std::vector<B> outputs;
  const DataType compute = loops::ComputeType(type);
  const B result = b.Output("result", type, {n});
  const B flags = b.Output("flags", DataType::kBool, {n});
  const DataType others[] = {DataType::kF64,  DataType::kF32,      DataType::kF16,
                             DataType::kBF16, DataType::kF8E4M3FN, DataType::kI64,
                             DataType::kU64,  DataType::kI32,      DataType::kU8};
  for (DataType other : others) outputs.push_back(b.Output("to", other, {n}));
  b.ParallelFor(n, [&](E i) {
    const E u = b.Let(x.At({i})), v = b.Let(y.At({i}));
    E sum = b.Let(u);
    for (int op = 0; op <= static_cast<int>(BinaryOp::kMax); ++op)
      sum = b.Let(sum + Binary(static_cast<BinaryOp>(op), u, v));
    sum = b.Let(sum + Pow(u, v));
    const int last =
        IsFloat(compute) ? static_cast<int>(UnaryOp::kRoundEven) : static_cast<int>(UnaryOp::kNot);
    for (int op = 0; op <= last; ++op) {
      if (IsFloat(compute) && op == static_cast<int>(UnaryOp::kNot)) continue;
      sum = b.Let(sum + Unary(static_cast<UnaryOp>(op), u));
    }
    b.Store(result, {i}, sum);
    b.Store(flags, {i}, u < v);
    for (const B& output : outputs) b.Store(output, {i}, Cast(sum, output.dtype()));
  });
  return b.Finish();
}

const std::set<std::string>& Allowed() {
  static const std::set<std::string> names = {"memcpy", "memmove", "memset", "memcmp",
                                              "_GLOBAL_OFFSET_TABLE_"};
  return names;
}

TEST(Targets, NoLibraryCalls) {
  const std::vector<TargetName> names = TargetNames();
  for (const TargetName& each : names) {
    const std::string& name = each.name;
    const auto targets = ResolveTarget(name);
    ASSERT_TRUE(targets.ok()) << targets.status();
    for (const Target& target : *targets) {
      auto builder = ModuleBuilder::Create(target);
      ASSERT_TRUE(builder.ok()) << builder.status();
      SymbolTable symbols;
      for (DataType type : {DataType::kF32, DataType::kF64, DataType::kF16, DataType::kI64,
                            DataType::kU64, DataType::kI32, DataType::kU32, DataType::kI8}) {
        for (bool vectorise : {false, true}) {
          const auto kernel = EmitLoops(**builder, target, Everything(type), symbols, vectorise);
          ASSERT_TRUE(kernel.ok()) << name << " " << DataTypeName(type) << ": " << kernel.status();
        }
      }
      const auto object = (*builder)->Finish();
      ASSERT_TRUE(object.ok()) << object.status();
      for (const std::string& symbol : UndefinedSymbols(*object)) {
        EXPECT_EQ(Allowed().count(symbol), 1u) << target.name << " needs " << symbol;
      }
    }
  }
}

TEST(Targets, UnknownTripleIsAnError) {
  Target target = HostTarget();
  target.triple = "nosuch-unknown-none";
  EXPECT_FALSE(ModuleBuilder::Create(target).ok());
}

TEST(Targets, UnsupportedElementTypesAreErrors) {
  Builder b("strings");
  const B x = b.Input("x", DataType::kF4E2M1, {b.I(4)});
  const B y = b.Output("y", DataType::kF32, {b.I(4)});
  b.ParallelFor(b.I(4), [&](E i) { b.Store(y, {i}, x.At({i})); });
  SymbolTable symbols;
  auto builder = *ModuleBuilder::Create(HostTarget());
  EXPECT_EQ(EmitLoops(*builder, HostTarget(), b.Finish(), symbols, true).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(Targets, SameInputSameBytes) {
  const auto compile = [] {
    SymbolTable symbols;
    auto builder = *ModuleBuilder::Create(HostTarget());
    EXPECT_TRUE(EmitLoops(*builder, HostTarget(), Everything(DataType::kF32), symbols, true).ok());
    return *builder->Finish();
  };
  EXPECT_EQ(compile(), compile());
}

}  // namespace
}  // namespace quench::codegen::target_test
