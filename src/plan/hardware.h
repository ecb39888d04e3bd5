// What a device and a link can do, as small JSON files (assets/hardware/, docs/planner.md): effective rates, each with
// a word on where it comes from. Files are nobody's promise: they are bounded, every number has a range, and what is
// missing or unknown is an error that names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "dist/ring_cost.h"

namespace godwit::plan {

// One number of a description.
struct Constant {
  std::string key;  // with its unit: "matmul_tflops"
  double value = 0;
  std::string source;  // "published", "measured", "fitted" or "assumed"
  std::string note;
};

// One device: a GPU, or a CPU with all its threads. Rates are what kernels reach, not what data sheets promise.
struct Device {
  std::string name, description;
  std::vector<Constant> constants;  // as in the file

  double memory_bytes = 0;
  double matmul_flops = 0, attention_flops = 0;  // per second, of many rows
  double weight_bytes_per_s = 0, kv_bytes_per_s = 0, elementwise_bytes_per_s = 0;
  double prefill_layer_s = 0, decode_layer_s = 0;  // of each layer, whatever its work
  double cached_layer_s = 0;                       // more of it where a prefill finds a cache
  double ring_step_s = 0;                          // see dist::RingConstants
  double activation_bytes = 2, partial_bytes = 4;  // per number
  double chunk_tokens = 0;                         // of a prompt, at once; 0: all
  // Ranks keep segments of so many tokens in turn: new keys and values go there first, and each has a partial output of
  // its own. 0: keys and values stay where they are computed, and a rank returns one.
  double segment_tokens = 0;
  // Tensor parallelism: devices of a node and their all-reduce. bytes_per_s is the bus bandwidth of nccl-tests; 0:
  // none.
  double node_devices = 1, all_reduce_bytes_per_s = 0, all_reduce_s = 0;
};

// Between two context-parallel ranks, for each of their devices.
struct Link {
  std::string name, description;
  std::vector<Constant> constants;

  double send_s = 0, send_bytes_per_s = 0;
  double exchange_s = 0, exchange_bytes_per_s = 0;
  double small_exchange_s = 0, small_exchange_bytes = 0;  // exchanges up to so many bytes have a latency of their own
  double all_reduce_hop_s = 0;                            // per further node that an all-reduce spans
  double handled_bytes_per_s = 0;  // what ranks' own processors copy and check, at each end; 0: they have no part in it

  dist::LinkCost send() const { return {send_s, send_bytes_per_s}; }
  dist::LinkCost exchange(double bytes) const {
    return {bytes <= small_exchange_bytes ? small_exchange_s : exchange_s, exchange_bytes_per_s};
  }
};

// From the text of a file; `label` is what errors call it.
Result<Device> parse_device(std::string_view text, const std::string& label);
// By name (of those compiled in) or by path.
Result<Device> find_device(const std::string& name);
Result<Link> find_link(const std::string& name);
std::vector<std::string> device_names();
std::vector<std::string> link_names();

// The file of a description; parse_device gives it back.
std::string device_text(const Device& device);
// Takes the value of a constant into `device` and among its constants. REQUIRES: the key exists.
void set_constant(Device& device, Constant constant);

// One file of assets/hardware, compiled in; generated.
struct HardwareAsset {
  std::string_view name, text;
};
std::vector<HardwareAsset> hardware_assets();

}  // namespace godwit::plan
