// One case for each rule, so that each can be seen to fail.
#include "tests/unit/proto/breaking.h"

#include <gtest/gtest.h>

#include "tests/unit/proto/parse_proto.h"

namespace quench::breaking_test {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;

using Edits = std::vector<std::pair<std::string, std::string>>;

// A file with one of everything, in protobuf's text form; cases edit it.
constexpr char kShop[] = R"(
name: "shop.proto"  package: "shop.v1"  syntax: "proto3"
message_type {
  name: "Order"
  field { name: "name" number: 1 type: TYPE_STRING }
  field { name: "tags" number: 3 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "count" number: 2 type: TYPE_INT32 }
  field { name: "card" number: 5 type: TYPE_STRING oneof_index: 0 }
  field { name: "cash" number: 6 type: TYPE_STRING oneof_index: 0 }
  field { name: "prices" number: 10 type_name: "PricesEntry" label: LABEL_REPEATED }
  field { name: "kind" number: 11 type_name: "Kind" }
  field { name: "gift" number: 4 type: TYPE_BOOL oneof_index: 1 proto3_optional: true }
  oneof_decl { name: "payment" }
  oneof_decl { name: "_gift" }
  reserved_range { start: 7 end: 10 }
  reserved_name: "colour"
  nested_type {
    name: "PricesEntry"  options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_INT32 }
  }
  nested_type { name: "Item" field { name: "name" number: 1 type: TYPE_STRING } }
  enum_type { name: "Kind" value { name: "KIND_UNSPECIFIED" number: 0 } }
  enum_type { name: "Colour" value { name: "COLOUR_UNSPECIFIED" number: 0 } }
}
message_type { name: "Receipt" }
message_type { name: "Bill" }
enum_type {
  name: "Size"
  value { name: "SIZE_UNSPECIFIED" number: 0 }
  value { name: "SIZE_LARGE" number: 2 }
  reserved_range { start: 5 end: 5 }
  reserved_name: "SIZE_HUGE"
}
enum_type { name: "Shape" value { name: "SHAPE_UNSPECIFIED" number: 0 } }
service {
  name: "Shop"
  method { name: "Buy" input_type: "Order" output_type: "Receipt" }
  method { name: "Sell" input_type: "Order" output_type: "Receipt" }
  method { name: "Watch" input_type: "Order" output_type: "Receipt" server_streaming: true }
}
service { name: "Bank" }
)";

FileDescriptorSet Shop(const Edits& edits = {}) {
  FileDescriptorSet set;
  DescriptorPool pool;
  const FileDescriptor* file = ParseFile(Edited(kShop, edits), pool);
  if (file == nullptr) return set;
  FileDescriptorProto* proto = set.add_file();
  file->CopyTo(proto);
  file->CopyJsonNameTo(proto);
  return set;
}

struct Change {
  std::string name;
  Edits edits;
  std::string problem;
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class Breaking : public testing::TestWithParam<Change> {};

TEST_P(Breaking, IsFound) {
  const FileDescriptorSet after = Shop(GetParam().edits);
  ASSERT_EQ(after.file_size(), 1);
  EXPECT_EQ(FindBreakingChanges(Shop(), after), std::vector<std::string>{GetParam().problem});
}

INSTANTIATE_TEST_SUITE_P(
    Change, Breaking,
    testing::Values(
        Change{"FileDeleted", {{"shop.proto", "new.proto"}}, "file `shop.proto`: deleted"},
        Change{"Package",
               {{"shop.v1", "shop.v2"}},
               "file `shop.proto`: package changed from shop.v1 to shop.v2"},
        Change{"MessageDeleted",
               {{"message_type { name: \"Bill\" }", ""}},
               "message `shop.v1.Bill`: deleted"},
        Change{
            "NestedMessageDeleted",
            {{"nested_type { name: \"Item\" field { name: \"name\" number: 1 type: TYPE_STRING } }",
              ""}},
            "message `shop.v1.Order.Item`: deleted"},
        Change{"FieldDeleted",
               {{"field { name: \"count\" number: 2 type: TYPE_INT32 }", ""}},
               "field 2 `shop.v1.Order.count`: deleted"},
        Change{"FieldReserved",
               {{"field { name: \"count\" number: 2 type: TYPE_INT32 }",
                 "reserved_range { start: 2 end: 3 } reserved_name: \"count\""}},
               "field 2 `shop.v1.Order.count`: deleted"},
        Change{"FieldRenumbered",
               {{"number: 2", "number: 12"}},
               "field 2 `shop.v1.Order.count`: deleted"},
        Change{"FieldOfNestedMessageDeleted",
               {{"\"Item\" field { name: \"name\" number: 1 type: TYPE_STRING }", "\"Item\""}},
               "field 1 `shop.v1.Order.Item.name`: deleted"},
        Change{"JsonName",
               {{"\"count\"", "\"count\" json_name: \"n\""}},
               "field 2 `shop.v1.Order.count`: JSON name changed"},
        Change{"FieldType",
               {{"number: 2 type: TYPE_INT32", "number: 2 type: TYPE_INT64"}},
               "field 2 `shop.v1.Order.count`: type changed from TYPE_INT32 to TYPE_INT64"},
        Change{"FieldOfAnotherEnum",
               {{"type_name: \"Kind\"", "type_name: \"Size\""}},
               "field 11 `shop.v1.Order.kind`: type changed from .shop.v1.Order.Kind to "
               ".shop.v1.Size"},
        Change{"MapValue",
               {{"\"value\" number: 2 type: TYPE_INT32", "\"value\" number: 2 type: TYPE_INT64"}},
               "field 2 `shop.v1.Order.PricesEntry.value`: type changed from TYPE_INT32 to "
               "TYPE_INT64"},
        Change{"LabelNotRepeated",
               {{"TYPE_STRING label: LABEL_REPEATED", "TYPE_STRING"}},
               "field 3 `shop.v1.Order.tags`: label changed"},
        Change{
            "LabelNotOptional",
            {{" oneof_index: 1 proto3_optional: true", ""}, {"oneof_decl { name: \"_gift\" }", ""}},
            "field 4 `shop.v1.Order.gift`: label changed"},
        Change{"IntoOneof",
               {{"number: 2 type: TYPE_INT32", "number: 2 type: TYPE_INT32 oneof_index: 0"}},
               "field 2 `shop.v1.Order.count`: moved from oneof `` to `payment`"},
        Change{"OutOfOneof",
               {{"number: 6 type: TYPE_STRING oneof_index: 0", "number: 6 type: TYPE_STRING"}},
               "field 6 `shop.v1.Order.cash`: moved from oneof `payment` to ``"},
        Change{"ReservedNumbers",
               {{"start: 7 end: 10", "start: 7 end: 9"}},
               "message `shop.v1.Order`: reserved numbers from 7 given free"},
        Change{"ReservedName",
               {{"reserved_name: \"colour\"", ""}},
               "message `shop.v1.Order`: reserved name `colour` given free"},
        Change{
            "EnumDeleted",
            {{"enum_type { name: \"Shape\" value { name: \"SHAPE_UNSPECIFIED\" number: 0 } }", ""}},
            "enum `shop.v1.Shape`: deleted"},
        Change{"NestedEnumDeleted",
               {{"enum_type { name: \"Colour\" value { name: \"COLOUR_UNSPECIFIED\" number: 0 } }",
                 ""}},
               "enum `shop.v1.Order.Colour`: deleted"},
        Change{"ValueDeleted",
               {{"value { name: \"SIZE_LARGE\" number: 2 }", ""}},
               "value `shop.v1.Size.SIZE_LARGE`: deleted"},
        Change{"ValueRenumbered",
               {{"\"SIZE_LARGE\" number: 2", "\"SIZE_LARGE\" number: 3"}},
               "value `shop.v1.Size.SIZE_LARGE`: number changed"},
        Change{"EnumReservedNumber",
               {{"reserved_range { start: 5 end: 5 }", ""}},
               "enum `shop.v1.Size`: reserved numbers from 5 given free"},
        Change{"EnumReservedName",
               {{"reserved_name: \"SIZE_HUGE\"", ""}},
               "enum `shop.v1.Size`: reserved name `SIZE_HUGE` given free"},
        Change{"ServiceDeleted",
               {{"service { name: \"Bank\" }", ""}},
               "service `shop.v1.Bank`: deleted"},
        Change{"RpcDeleted",
               {{"method { name: \"Sell\" input_type: \"Order\" output_type: \"Receipt\" }", ""}},
               "RPC `shop.v1.Shop.Sell`: deleted"},
        Change{"Request",
               {{"\"Sell\" input_type: \"Order\"", "\"Sell\" input_type: \"Bill\""}},
               "RPC `shop.v1.Shop.Sell`: request changed to .shop.v1.Bill"},
        Change{"Response",
               {{"\"Sell\" input_type: \"Order\" output_type: \"Receipt\"",
                 "\"Sell\" input_type: \"Order\" output_type: \"Bill\""}},
               "RPC `shop.v1.Shop.Sell`: response changed to .shop.v1.Bill"},
        Change{"RequestsStreamed",
               {{"\"Sell\"", "\"Sell\" client_streaming: true"}},
               "RPC `shop.v1.Shop.Sell`: streaming of requests changed"},
        Change{"ResponsesNotStreamed",
               {{" server_streaming: true", ""}},
               "RPC `shop.v1.Shop.Watch`: streaming of responses changed"}),
    [](const auto& test) { return test.param.name; });

FileDescriptorSet Empty(const std::string& syntax) {
  FileDescriptorSet set;
  set.add_file()->set_name("a.proto");
  set.mutable_file(0)->set_syntax(syntax);
  return set;
}

TEST(BreakingChanges, SyntaxIsCompared) {
  EXPECT_EQ(FindBreakingChanges(Empty("proto3"), Empty("proto2")),
            std::vector<std::string>{"file `a.proto`: syntax changed"});
}

TEST(BreakingChanges, RenamedFieldIsNamedTwice) {  // in code and in JSON
  EXPECT_EQ(FindBreakingChanges(Shop(), Shop({{"\"count\"", "\"n\""}})),
            (std::vector<std::string>{"field 2 `shop.v1.Order.count`: renamed to `n`",
                                      "field 2 `shop.v1.Order.count`: JSON name changed"}));
}

TEST(BreakingChanges, WhatIsImportedPubliclyIsStillThere) {
  FileDescriptorSet after = Shop({{"message_type { name: \"Bill\" }", ""}});
  FileDescriptorProto& moved = *after.add_file();
  moved.set_name("bills.proto");
  moved.set_package("shop.v1");
  moved.add_message_type()->set_name("Bill");
  after.mutable_file(0)->add_dependency("bills.proto");
  EXPECT_EQ(FindBreakingChanges(Shop(), after),
            std::vector<std::string>{"message `shop.v1.Bill`: deleted"});
  after.mutable_file(0)->add_public_dependency(0);
  EXPECT_EQ(FindBreakingChanges(Shop(), after), std::vector<std::string>());
}

TEST(BreakingChanges, AdditionsAndOrderBreakNothing) {
  for (const Edits& edits : std::vector<Edits>{
           {},
           {{"name: \"Bill\"",
             "name: \"Bill\" field { name: \"total\" number: 1 type: TYPE_INT32 }"}},
           {{"message_type { name: \"Bill\" }",
             "message_type { name: \"Coupon\" } message_type { name: \"Bill\" }"}},
           {{"field { name: \"prices\"",
             "field { name: \"cheque\" number: 12 type: TYPE_STRING oneof_index: 0 }\n"
             "field { name: \"prices\""}},
           {{"field { name: \"count\" number: 2 type: TYPE_INT32 }", ""},
            {"field { name: \"name\"",
             "field { name: \"count\" number: 2 type: TYPE_INT32 } field { name: \"name\""}},
           {{"reserved_range { start: 7",
             "reserved_range { start: 20 end: 21 } reserved_range { start: 7"}},
           {{"value { name: \"SIZE_LARGE\"",
             "value { name: \"SIZE_SMALL\" number: 1 } value { name: \"SIZE_LARGE\""}},
           {{"service { name: \"Bank\" }",
             "service { name: \"Bank\" method { name: \"Pay\" input_type: \"Bill\" output_type: "
             "\"Receipt\" } } service { name: \"Post\" }"}}}) {
    const FileDescriptorSet after = Shop(edits);
    ASSERT_EQ(after.file_size(), 1);
    EXPECT_EQ(FindBreakingChanges(Shop(), after), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace quench::breaking_test
