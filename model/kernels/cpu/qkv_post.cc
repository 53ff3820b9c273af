#include "model/kernels/qkv_post.h"

#include <algorithm>

#include "model/kernels/attention.h"
#include "model/kernels/elementwise.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

void AddRow(const float* from, int64_t count, float* to) {
  const Matrix<float> row(to, 1, count);
  AddRows(row, Matrix<const float>(from, 1, count), row);
}

template <typename T>
void ConvertRow(const float* from, int64_t count, T* to) {
  ConvertRows(Matrix<const float>(from, 1, count), Matrix<T>(to, 1, count));
}

// Gradient through the norm of one head; `d_head` goes in as the gradient of its output and out as that of its input.
void NormBackward(const QkvPost& post, const float* gain, const float* qkv, int64_t column, float* d_head,
                  float* d_gain) {
  const int64_t dim = post.head_dim;
  float x[kMaxHeadDim], scratch[kMaxHeadDim];
  std::copy(qkv + column, qkv + column + dim, x);
  if (post.bias != nullptr) AddRow(post.bias + column, dim, x);
  const Matrix<const float> input(x, 1, dim);
  float inv_rms = 0;
  RmsNormForward(input, gain, post.norm_eps, Matrix<float>(scratch, 1, dim), &inv_rms);
  std::fill(scratch, scratch + dim, 0.0f);
  RmsNormBackward(input, gain, &inv_rms, Matrix<const float>(d_head, 1, dim), Matrix<float>(scratch, 1, dim), d_gain);
  std::copy(scratch, scratch + dim, d_head);
}

void CheckPost(const QkvPost& post) {
  CHECK(post.head_dim > 0 && post.head_dim <= kMaxHeadDim);
  CHECK((post.query_norm == nullptr) == (post.key_norm == nullptr));
  CHECK(post.rope == nullptr || post.rope->head_dim() == post.head_dim);
}

}  // namespace

template <typename T>
void QkvPostForward(const QkvPost& post, int64_t position, float* qkv, T* q, T* k, T* v) {
  CheckPost(post);
  const int64_t dim = post.head_dim;
  float* keys = qkv + post.num_heads * dim;
  float* values = keys + post.num_kv_heads * dim;
  if (post.bias != nullptr) AddRow(post.bias, post.cols(), qkv);
  if (post.query_norm != nullptr) {
    const Matrix<float> q_heads(qkv, post.num_heads, dim), k_heads(keys, post.num_kv_heads, dim);
    RmsNormForward<float>(q_heads, post.query_norm, post.norm_eps, q_heads, nullptr);
    RmsNormForward<float>(k_heads, post.key_norm, post.norm_eps, k_heads, nullptr);
  }
  if (post.rope != nullptr) RopeForward(*post.rope, position, post.num_heads + post.num_kv_heads, qkv);
  ConvertRow(qkv, post.num_heads * dim, q);
  ConvertRow(keys, post.num_kv_heads * dim, k);
  ConvertRow(values, post.num_kv_heads * dim, v);
}

template <typename T>
void QkvPostBackward(const QkvPost& post, int64_t position, const float* qkv, float* dq, float* dk, float* dv, T* d_qkv,
                     QkvPostGradients gradients) {
  CheckPost(post);
  const int64_t dim = post.head_dim;
  const int64_t q_cols = post.num_heads * dim, kv_cols = post.num_kv_heads * dim;
  if (post.rope != nullptr) {
    RopeBackward(*post.rope, position, post.num_heads, dq);
    RopeBackward(*post.rope, position, post.num_kv_heads, dk);
  }
  if (post.query_norm != nullptr) {
    CHECK(qkv != nullptr && gradients.query_norm != nullptr && gradients.key_norm != nullptr);
    for (int64_t h = 0; h < post.num_heads; ++h) {
      NormBackward(post, post.query_norm, qkv, h * dim, dq + h * dim, gradients.query_norm);
    }
    for (int64_t h = 0; h < post.num_kv_heads; ++h) {
      NormBackward(post, post.key_norm, qkv, q_cols + h * dim, dk + h * dim, gradients.key_norm);
    }
  }
  if (post.bias != nullptr) {
    CHECK(gradients.bias != nullptr);
    AddRow(dq, q_cols, gradients.bias);
    AddRow(dk, kv_cols, gradients.bias + q_cols);
    AddRow(dv, kv_cols, gradients.bias + q_cols + kv_cols);
  }
  ConvertRow(dq, q_cols, d_qkv);
  ConvertRow(dk, kv_cols, d_qkv + q_cols);
  ConvertRow(dv, kv_cols, d_qkv + q_cols + kv_cols);
}

#define LOCKSTEP_INSTANTIATE(T)                                                 \
  template void QkvPostForward<T>(const QkvPost&, int64_t, float*, T*, T*, T*); \
  template void QkvPostBackward<T>(const QkvPost&, int64_t, const float*, float*, float*, float*, T*, QkvPostGradients);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::model
