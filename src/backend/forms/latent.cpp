#include "backend/forms/latent.h"

#include <cmath>
#include <numeric>

#include "backend/code_rows.h"
#include "backend/kv_codes.h"
#include "base/check.h"
#include "tensor/half.h"

namespace godwit {
namespace {

constexpr size_t kNear = 64, kFar = 256;
constexpr int32_t kMostStep = 255;

// Rows hold levels from 0 on; kv_encode() has signs and magnitudes in 8 bits.
uint8_t row_code(int bits, uint8_t code) {
  return bits < 8 ? code : static_cast<uint8_t>(127 + static_cast<int>(kv_code_level(8, code)));
}

// latent[kept, tokens] of numbers[dims, tokens].
std::vector<float> project(const LatentHalf& at, const float* basis, const float* numbers, size_t dims) {
  std::vector<float> latent(at.kept * at.tokens);
  for (size_t i = 0; i < at.kept; ++i)
    for (size_t dim = 0; dim < dims; ++dim) {
      const float weight = basis[i * dims + dim];
      for (size_t t = 0; t < at.tokens; ++t) latent[i * at.tokens + t] += weight * numbers[dim * at.tokens + t];
    }
  return latent;
}

void write(const LatentHalf& at, const std::vector<float>& latent, std::byte* half) {
  std::vector<uint8_t> codes(at.tokens);
  for (size_t i = 0; i < at.kept; ++i) {
    const float* line = &latent[i * at.tokens];
    auto* row = const_cast<std::byte*>(at.row(half, i));
    if (!at.has_code(i)) {
      for (size_t t = 0; t < at.tokens; ++t)
        reinterpret_cast<uint16_t*>(row)[t] = float_to_f16(std::clamp(line[t], -kF16Max, kF16Max));
      continue;
    }
    const int bits = at.bits_of(i);
    const KvCodeScale scale = kv_encode(bits, line, at.tokens, codes.data());
    const_cast<uint16_t*>(at.scale(half))[i] = scale.scale;
    const_cast<uint16_t*>(at.middle(half))[i] = scale.middle;
    for (uint8_t& code : codes) code = row_code(bits, code);
    write_code_row(codes.data(), bits, at.tokens, row);
  }
}

float coordinate(const LatentHalf& at, const std::byte* half, size_t i, size_t token) {
  if (!at.has_code(i)) return f16_to_float(reinterpret_cast<const uint16_t*>(at.row(half, i))[token]);
  const int bits = at.bits_of(i);
  const float level = static_cast<float>(code_in_row(at.row(half, i), bits, at.tokens, token)) - kv_top_level(bits);
  return f16_to_float(at.middle(half)[i]) + f16_to_float(at.scale(half)[i]) * level;
}

// numbers[dims, tokens] of a half.
std::vector<float> rebuild(const LatentHalf& at, const std::byte* half, const float* basis, size_t dims) {
  std::vector<float> numbers(dims * at.tokens), line(at.tokens);
  for (size_t i = 0; i < at.kept; ++i) {
    for (size_t t = 0; t < at.tokens; ++t) line[t] = coordinate(at, half, i, t);
    for (size_t dim = 0; dim < dims; ++dim)
      for (size_t t = 0; t < at.tokens; ++t) numbers[dim * at.tokens + t] += basis[i * dims + dim] * line[t];
  }
  return numbers;
}

}  // namespace

LatentForm::LatentForm(size_t head_dim, const LatentOptions& options, LatentRope rope, std::vector<float> bases)
    : PageForm(Kind::kLatent, head_dim, kMostTokens),
      keys_{options.strong, options.weak_bits == 0 ? options.strong : head_dim, kMostTokens, options.k_bits,
            options.weak_bits},
      values_(keys_),
      rope_(std::move(rope)),
      bases_(std::move(bases)) {
  values_.bits = options.v_bits;
  GODWIT_CHECK(head_dim % 16 == 0 && head_dim <= kMostDims && options.strong >= 1 && options.strong <= head_dim);
  for (int bits : {keys_.bits, values_.bits}) GODWIT_CHECK(bits == 2 || bits == 4 || bits == 8 || bits == 16);
  GODWIT_CHECK(options.weak_bits == 0 || options.weak_bits == 2 || options.weak_bits == 4);
  GODWIT_CHECK(!bases_.empty() && bases_.size() % (2 * head_dim * head_dim) == 0);
  GODWIT_CHECK(rope_.rotary_dim % 2 == 0 && rope_.rotary_dim <= head_dim);
  GODWIT_CHECK(rope_.speed.size() == tables() * frequencies());
  for (size_t table = 0; table < tables(); ++table) add_turns(rope_.speed.data() + table * frequencies());
  columns_.resize(bases_.size() / head_dim * column());
  for (size_t line = 0; line < bases_.size() / head_dim; ++line)  // a coordinate of a basis
    for (size_t dim = 0; dim < head_dim; ++dim)
      columns_[(line / head_dim * head_dim + dim) * column() + line % head_dim] =
          float_to_bf16(bases_[line * head_dim + dim]);
}

void LatentForm::add_turns(const float* speed) {
  const std::vector<float> wanted(speed, speed + frequencies());
  const auto known = std::find_if(turns_.begin(), turns_.end(), [&](const Turns& t) { return t.speed == wanted; });
  turns_of_.push_back(static_cast<size_t>(known - turns_.begin()));
  if (known != turns_.end()) return;
  Turns& made = turns_.emplace_back();
  made.speed = wanted;
  for (double angle : wanted) {
    for (size_t i = 0; i < kNear; ++i) {
      made.near_cos.push_back(static_cast<float>(std::cos(angle * static_cast<double>(i))));
      made.near_sin.push_back(static_cast<float>(std::sin(angle * static_cast<double>(i))));
    }
  }
  for (size_t i = 0; i < kFar; ++i)
    for (double angle : wanted) {
      const double far = angle * static_cast<double>(kNear * i), last = angle * static_cast<double>(kNear * kFar * i);
      made.far_cos.push_back(static_cast<float>(std::cos(far)));
      made.far_sin.push_back(static_cast<float>(std::sin(far)));
      made.last_cos.push_back(static_cast<float>(std::cos(last)));
      made.last_sin.push_back(static_cast<float>(std::sin(last)));
    }
}

bool LatentForm::has_neighbours(const std::byte* page) const {
  return std::all_of(steps(page) + 1, steps(page) + page_tokens(), [](uint8_t step) { return step == 1; });
}

// By tables: cosines and sines themselves would cost more than all the rest of reading a page.
void LatentForm::first_turns(const std::byte* page, float* cosine, float* sine) const {
  const Turns& table = turns_of(page);
  const size_t count = frequencies(), first = static_cast<uint32_t>(first_position(page));
  const size_t near = first % kNear, far = first / kNear % kFar, last = first / (kNear * kFar);
  if (last >= kFar) {
    for (size_t f = 0; f < count; ++f) {
      const double angle = double{table.speed[f]} * first_position(page);
      cosine[f] = static_cast<float>(std::cos(angle));
      sine[f] = static_cast<float>(std::sin(angle));
    }
    return;
  }
  const float *far_cos = &table.far_cos[far * count], *far_sin = &table.far_sin[far * count];
  const float *last_cos = &table.last_cos[last * count], *last_sin = &table.last_sin[last * count];
  for (size_t f = 0; f < count; ++f) {
    cosine[f] = last_cos[f] * far_cos[f] - last_sin[f] * far_sin[f];
    sine[f] = last_sin[f] * far_cos[f] + last_cos[f] * far_sin[f];
  }
  for (size_t f = 0; near != 0 && f < count; ++f) {
    const float c = cosine[f], s = sine[f];
    const float near_cos = table.near_cos[f * kNear + near], near_sin = table.near_sin[f * kNear + near];
    cosine[f] = c * near_cos - s * near_sin;
    sine[f] = s * near_cos + c * near_sin;
  }
}

void LatentForm::turns(const std::byte* page, float* cosine, float* sine) const {
  const size_t tokens = page_tokens();
  const Turns& table = turns_of(page);
  const uint8_t* step = steps(page);
  size_t ahead[kMostTokens] = {};
  for (size_t t = 1; t < tokens; ++t) ahead[t] = ahead[t - 1] + step[t];
  const bool neighbours = has_neighbours(page);
  float first_cos[kMostDims / 2], first_sin[kMostDims / 2];
  first_turns(page, first_cos, first_sin);
  for (size_t f = 0; f < frequencies(); ++f, cosine += tokens, sine += tokens) {
    const float c = first_cos[f], s = first_sin[f];
    const float *near_cos = &table.near_cos[f * kNear], *near_sin = &table.near_sin[f * kNear];
    if (neighbours) {
      for (size_t t = 0; t < tokens; ++t) {
        cosine[t] = c * near_cos[t] - s * near_sin[t];
        sine[t] = s * near_cos[t] + c * near_sin[t];
      }
      continue;
    }
    for (size_t t = 0; t < tokens; ++t) {
      const size_t near = ahead[t] % kNear, far = ahead[t] / kNear * frequencies() + f;
      const float far_c = c * table.far_cos[far] - s * table.far_sin[far];
      const float far_s = s * table.far_cos[far] + c * table.far_sin[far];
      cosine[t] = far_c * near_cos[near] - far_s * near_sin[near];
      sine[t] = far_s * near_cos[near] + far_c * near_sin[near];
    }
  }
}

void LatentForm::turn(const std::byte* page, float direction, float* keys) const {
  const size_t tokens = page_tokens();
  std::vector<float> cosine(frequencies() * tokens), sine(cosine.size());
  turns(page, cosine.data(), sine.data());
  for (size_t f = 0; f < frequencies(); ++f) {
    float *a = keys + first_of(f) * tokens, *b = keys + second_of(f) * tokens;
    for (size_t t = 0; t < tokens; ++t) {
      const float x = a[t], y = b[t], c = cosine[f * tokens + t], s = direction * sine[f * tokens + t];
      a[t] = x * c - y * s;
      b[t] = y * c + x * s;
    }
  }
}

void LatentForm::seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const {
  const size_t dims = head_dim(), tokens = page_tokens();
  const int32_t first = place.positions[0];
  std::memcpy(page + head_bytes(), &first, sizeof(first));
  auto* step = const_cast<uint8_t*>(steps(page));
  step[0] = 0;
  int32_t reached = first;
  for (size_t t = 1; t < tokens; ++t) {
    step[t] = static_cast<uint8_t>(std::clamp(place.positions[t] - reached, 0, kMostStep));
    reached += step[t];
  }
  std::vector<float> lines(k, k + dims * tokens);
  turn(page, -1, lines.data());
  write(keys_, project(keys_, k_basis(place.table), lines.data(), dims), const_cast<std::byte*>(key_half(page)));
  for (size_t dim = 0; dim < dims; ++dim)
    for (size_t t = 0; t < tokens; ++t) lines[dim * tokens + t] = v[t * dims + dim];
  write(values_, project(values_, v_basis(place.table), lines.data(), dims), const_cast<std::byte*>(value_half(page)));
}

float LatentForm::key_at(const std::byte* page, size_t token, size_t dim) const {
  const bool turned = dim < rope_.rotary_dim;
  const size_t f = rope_.pairs ? dim / 2 : dim % std::max<size_t>(1, frequencies());
  const size_t other = !turned ? dim : dim == first_of(f) ? second_of(f) : first_of(f);
  const float* basis = k_basis(table_of(page));
  float own = 0, its = 0;
  for (size_t i = 0; i < keys_.kept; ++i) {
    const float x = coordinate(keys_, key_half(page), i, token);
    own += basis[i * head_dim() + dim] * x;
    its += basis[i * head_dim() + other] * x;
  }
  if (!turned) return own;
  const double position =
      std::accumulate(steps(page) + 1, steps(page) + token + 1, static_cast<double>(first_position(page)));
  const double angle = turns_[turns_of_[table_of(page)]].speed[f] * position;
  const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
  return dim == first_of(f) ? own * c - its * s : own * c + its * s;
}

float LatentForm::value_at(const std::byte* page, size_t token, size_t dim) const {
  const float* basis = v_basis(table_of(page));
  float sum = 0;
  for (size_t i = 0; i < values_.kept; ++i)
    sum += basis[i * head_dim() + dim] * coordinate(values_, value_half(page), i, token);
  return sum;
}

void LatentForm::read_numbers(const std::byte* page, float* k, float* v) const {
  const size_t dims = head_dim(), tokens = page_tokens();
  const uint32_t table = table_of(page);
  std::vector<float> lines = rebuild(values_, value_half(page), v_basis(table), dims);
  for (size_t dim = 0; dim < dims; ++dim)
    for (size_t t = 0; t < tokens; ++t) v[t * dims + dim] = lines[dim * tokens + t];
  lines = rebuild(keys_, key_half(page), k_basis(table), dims);
  turn(page, 1, lines.data());
  std::copy(lines.begin(), lines.end(), k);
}

}  // namespace godwit
