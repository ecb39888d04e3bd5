#include "plan/hardware.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"

namespace godwit::plan {
namespace {

constexpr size_t kMostBytes = size_t{64} << 10;

template <class T>
struct Field {
  const char* key;
  double T::*member;
  double unit;
  bool required;
  bool may_be_zero;
};

constexpr Field<Device> kDeviceFields[] = {
    {"memory_gb", &Device::memory_bytes, 1e9, true, false},
    {"matmul_tflops", &Device::matmul_flops, 1e12, true, false},
    {"attention_tflops", &Device::attention_flops, 1e12, true, false},
    {"weight_gb_per_s", &Device::weight_bytes_per_s, 1e9, true, false},
    {"kv_gb_per_s", &Device::kv_bytes_per_s, 1e9, true, false},
    {"elementwise_gb_per_s", &Device::elementwise_bytes_per_s, 1e9, true, false},
    {"prefill_layer_us", &Device::prefill_layer_s, 1e-6, false, true},
    {"decode_layer_us", &Device::decode_layer_s, 1e-6, false, true},
    {"cached_layer_us", &Device::cached_layer_s, 1e-6, false, true},
    {"ring_step_us", &Device::ring_step_s, 1e-6, false, true},
    {"activation_bytes", &Device::activation_bytes, 1, true, false},
    {"partial_bytes", &Device::partial_bytes, 1, true, false},
    {"chunk_tokens", &Device::chunk_tokens, 1, false, true},
    {"segment_tokens", &Device::segment_tokens, 1, false, true},
    {"node_devices", &Device::node_devices, 1, false, false},
    {"all_reduce_gb_per_s", &Device::all_reduce_bytes_per_s, 1e9, false, false},
    {"all_reduce_us", &Device::all_reduce_s, 1e-6, false, true},
};

constexpr Field<Link> kLinkFields[] = {
    {"send_us", &Link::send_s, 1e-6, true, true},
    {"send_gb_per_s", &Link::send_bytes_per_s, 1e9, true, false},
    {"exchange_us", &Link::exchange_s, 1e-6, true, true},
    {"exchange_gb_per_s", &Link::exchange_bytes_per_s, 1e9, true, false},
    {"small_exchange_us", &Link::small_exchange_s, 1e-6, false, true},
    {"small_exchange_kb", &Link::small_exchange_bytes, 1e3, false, true},
    {"all_reduce_hop_us", &Link::all_reduce_hop_s, 1e-6, false, true},
    {"handled_gb_per_s", &Link::handled_bytes_per_s, 1e9, false, true},
};

constexpr std::string_view kSources[] = {"published", "measured", "fitted", "assumed"};

// What is printed must do nothing to a terminal.
bool printable(std::string_view text, size_t most) {
  return text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Result<std::string> read_text(const JsonObject& from, const char* key, bool required) {
  GODWIT_ASSIGN(const std::string text, required ? from.get<std::string>(key) : from.get_or<std::string>(key, ""));
  if (!printable(text, 400) || (required && text.empty()))
    return errorf(ErrorCode::kBadData, "{}: the key '{}' should be 1 to 400 printable ASCII characters", from.label(),
                  key);
  return text;
}

template <class T>
Result<Constant> read_constant(const JsonObject& all, const Field<T>& field) {
  GODWIT_ASSIGN(const JsonObject object, all.object(field.key));
  Constant constant{field.key, 0, "", ""};
  GODWIT_ASSIGN(constant.value, object.get<double>("value"));
  GODWIT_ASSIGN(constant.source, object.get<std::string>("source"));
  GODWIT_ASSIGN(constant.note, read_text(object, "note", false));
  const double least = field.may_be_zero ? 0 : 1e-9;
  if (!std::isfinite(constant.value) || constant.value < least || constant.value > 1e9)
    return errorf(ErrorCode::kBadData, "{}: {} is {}; give a number {} and at most 1e9", all.label(), field.key,
                  constant.value, field.may_be_zero ? "from 0" : "above 0");
  if (std::find(std::begin(kSources), std::end(kSources), constant.source) == std::end(kSources))
    return errorf(ErrorCode::kBadData, "{}: the source of {} should be one of {}", all.label(), field.key,
                  fmt::join(kSources, ", "));
  return constant;
}

template <class T>
Result<T> parse(std::string_view text, const std::string& label, std::string_view kind,
                std::span<const Field<T>> fields) {
  GODWIT_ASSIGN(const nlohmann::json json,
                parse_json(text, label, {.max_bytes = kMostBytes, .max_values = 1000, .max_depth = 4}));
  GODWIT_ASSIGN(const JsonObject top, JsonObject::of(json, label));
  GODWIT_ASSIGN(const std::string found, read_text(top, "kind", true));
  if (found != kind)
    return errorf(ErrorCode::kBadData, "{}: describes a '{}' where a '{}' is wanted", label, found, kind);
  T result;
  GODWIT_ASSIGN(result.name, read_text(top, "name", true));
  GODWIT_ASSIGN(result.description, read_text(top, "description", true));
  GODWIT_ASSIGN(const JsonObject constants, top.object("constants"));
  for (const auto& item : constants.value().items()) {
    const std::string& key = item.key();
    const bool known = std::any_of(fields.begin(), fields.end(), [&](const Field<T>& f) { return f.key == key; });
    if (known) continue;
    std::vector<std::string_view> keys;
    for (const Field<T>& field : fields) keys.emplace_back(field.key);
    return errorf(ErrorCode::kBadData, "{}: a {} has no constant '{}'; there are {}", label, kind,
                  printable(key, 60) ? key : "(unprintable)", fmt::join(keys, ", "));
  }
  for (const Field<T>& field : fields) {
    if (!field.required && !constants.has(field.key)) continue;
    GODWIT_ASSIGN(Constant constant, read_constant(constants, field));
    result.*field.member = constant.value * field.unit;
    result.constants.push_back(std::move(constant));
  }
  return result;
}

Result<std::string> read_file(const std::string& path, std::string_view kind, const std::vector<std::string>& names) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return errorf(ErrorCode::kNotFound, "there is no {} '{}', and no such file can be opened ({}); there are {}", kind,
                  path, std::strerror(errno), fmt::join(names, ", "));
  std::string text(kMostBytes + 1, '\0');  // one more than is accepted: what is longer is refused, not cut
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof()))
    return errorf(ErrorCode::kIo, "{}: cannot be read; is it a folder?", path);
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

bool is_kind(const HardwareAsset& asset, std::string_view kind) {
  return asset.text.find(fmt::format("\"kind\": \"{}\"", kind)) != std::string_view::npos;
}

std::vector<std::string> names_of(std::string_view kind) {
  std::vector<std::string> names;
  for (const HardwareAsset& asset : hardware_assets())
    if (is_kind(asset, kind)) names.emplace_back(asset.name);
  return names;
}

template <class T>
Result<T> find(const std::string& name, std::string_view kind, std::span<const Field<T>> fields) {
  for (const HardwareAsset& asset : hardware_assets())
    if (asset.name == name && is_kind(asset, kind)) return parse<T>(asset.text, name, kind, fields);
  GODWIT_ASSIGN(const std::string text, read_file(name, kind, names_of(kind)));
  return parse<T>(text, name, kind, fields);
}

}  // namespace

Result<Device> parse_device(std::string_view text, const std::string& label) {
  return parse<Device>(text, label, "device", kDeviceFields);
}

Result<Device> find_device(const std::string& name) {
  return find<Device>(name, "device", kDeviceFields);
}

Result<Link> find_link(const std::string& name) {
  return find<Link>(name, "link", kLinkFields);
}

std::vector<std::string> device_names() {
  return names_of("device");
}

std::vector<std::string> link_names() {
  return names_of("link");
}

void set_constant(Device& device, Constant constant) {
  const auto field = std::find_if(std::begin(kDeviceFields), std::end(kDeviceFields),
                                  [&](const Field<Device>& f) { return f.key == constant.key; });
  GODWIT_CHECK(field != std::end(kDeviceFields));
  device.*(field->member) = constant.value * field->unit;
  const auto old = std::find_if(device.constants.begin(), device.constants.end(),
                                [&](const Constant& c) { return c.key == constant.key; });
  if (old != device.constants.end())
    *old = std::move(constant);
  else
    device.constants.push_back(std::move(constant));
}

std::string device_text(const Device& device) {
  nlohmann::ordered_json json = {{"kind", "device"}, {"name", device.name}, {"description", device.description}};
  for (const Constant& c : device.constants)
    json["constants"][c.key] = {{"value", c.value}, {"source", c.source}, {"note", c.note}};
  return json.dump(2) + "\n";
}

}  // namespace godwit::plan
