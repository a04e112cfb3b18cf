"""What recorded kernels are, checked against their source.

Traits that a change of shape alone can change are left out (`SIZE_TRAITS`); the
families' names tell what each must have at least.
"""

from __future__ import annotations

from costmodel.features.trait_names import Trait

SIZE_TRAITS = frozenset({Trait.SKINNY, Trait.LONG_ROWS, Trait.GROUP_REDUCTION})

# Kernel: class, then traits in order.
EXPECTED = {
    "attention_full": "multi_dot attention_forward batched online",
    "attention_causal_bounded": (
        "multi_dot attention_forward batched online prefix_loop"
    ),
    "attention_key_value_gradient": "multi_dot attention_backward batched",
    "attention_query_gradient_causal": (
        "multi_dot attention_backward batched prefix_loop"
    ),
    "decode_one_program": "multi_dot attention_forward batched online",
    "decode_split_cache": "multi_dot attention_forward batched split_k online",
    "decode_fp8_cache": "multi_dot attention_forward batched mixed_precision online",
    "paged_by_token": "data_dependent jagged gather attention_forward batched online",
    "paged_split": "multi_dot gather attention_forward batched split_k online",
    "conv1d_channels_last": "multi_dot accumulated_dots pointwise_epilogue stencil",
    "conv2d_same": "multi_dot accumulated_dots pointwise_epilogue stencil",
    "causal_conv": "pointwise contiguous broadcast stencil",
    "depthwise_3x3": "pointwise contiguous broadcast stencil",
    "conv_update": "pointwise contiguous broadcast split join",
    "clamped_swiglu": "pointwise contiguous",
    "gated_act_to_fp8": "pointwise contiguous split",
    "gated_group_fp8": "reduction row_reduction single_pass contiguous",
    "gated_row_fp8": "reduction row_reduction single_pass contiguous",
    "fused_mlp": "multi_dot chained_dots",
    "fused_swiglu_mlp": "multi_dot gated chained_dots",
    "geglu_bias": "multi_dot gated pointwise_epilogue",
    "decode_norm_swiglu": (
        "multi_dot gated prologue pointwise_epilogue row_reduction_prologue "
        "row_reduction"
    ),
    "embedding_rows": "pointwise gather contiguous",
    "embedding_bag": "pointwise gather single_pass loop_reduction contiguous broadcast",
    "gather_columns": "pointwise gather contiguous",
    "embedding_with_position": "pointwise gather contiguous broadcast",
    "ragged_mean": "data_dependent jagged column_reduction single_pass contiguous",
    "ragged_row_bias": "data_dependent jagged contiguous broadcast",
    "ragged_softmax": (
        "data_dependent jagged column_reduction re_read online contiguous"
    ),
    "ragged_to_padded": "pointwise jagged contiguous",
    "cache_read": "pointwise gather contiguous",
    "cache_write": "pointwise gather scatter contiguous join",
    "chunk_states": "matmul batched split_k",
    "gated_delta_states": "multi_dot linear_attention row_reduction scan",
    "gated_delta_weights": (
        "multi_dot linear_attention batched full_k mixed_precision prologue"
    ),
    "cross_entropy_online": (
        "reduction row_reduction single_pass online contiguous broadcast"
    ),
    "cross_entropy_rows": (
        "reduction row_reduction single_pass chained_reductions contiguous"
    ),
    "cross_entropy_backward": "pointwise contiguous broadcast",
    "gemm_nn": "matmul plain",
    "gemm_full_depth": "matmul full_k",
    "bmm_nn": "matmul batched",
    "bmm_nt_bias": "matmul batched pointwise_epilogue",
    "mm_bias_gelu": "matmul pointwise_epilogue",
    "linear_residual_start": "matmul pointwise_epilogue",
    "expert_weight_gradient": "data_dependent jagged grouped",
    "packed_expert_gated": "data_dependent jagged grouped gated pointwise_epilogue",
    "jagged_scores": "matmul jagged batched full_k pointwise_epilogue",
    "gathered_block_gemm": "matmul grouped gather batched",
    "fp8_gemm_block_scale": "matmul fp8 block_scaled",
    "fp8_gemm_row_col_scale": "matmul fp8 pointwise_epilogue",
    "fp4_weight_gemm": "multi_dot accumulated_dots mixed_precision prologue packed",
    "mm_layer_norm": (
        "matmul_reduction pointwise_epilogue row_reduction_epilogue chained_reductions"
    ),
    "head_cross_entropy": (
        "matmul_reduction pointwise_epilogue row_reduction_epilogue online"
    ),
    "mm_row_peak": "matmul_reduction pointwise_epilogue row_reduction_epilogue",
    "layer_norm_dx": "reduction row_reduction single_pass contiguous broadcast",
    "norm_dw_atomic": (
        "reduction column_reduction single_pass split_reduction contiguous broadcast "
        "atomic"
    ),
    "norm_dw_columns": "reduction column_reduction single_pass contiguous broadcast",
    "norm_dw_partials": (
        "reduction column_reduction single_pass split_reduction contiguous broadcast"
    ),
    "add_rms_norm": "reduction row_reduction single_pass contiguous broadcast",
    "layer_norm": (
        "reduction row_reduction single_pass chained_reductions contiguous broadcast"
    ),
    "layer_norm_merge": "reduction row_reduction re_read contiguous broadcast",
    "adam_step": "pointwise contiguous",
    "add_broadcast": "pointwise contiguous broadcast",
    "bias_relu": "pointwise contiguous broadcast",
    "dequantise_int8": "pointwise contiguous broadcast",
    "group_absmax_fp8": "reduction row_reduction single_pass contiguous",
    "norm_row_fp8": (
        "reduction row_reduction single_pass chained_reductions contiguous broadcast"
    ),
    "column_sum": "reduction column_reduction single_pass contiguous",
    "column_sum_split": (
        "reduction column_reduction single_pass split_reduction contiguous atomic"
    ),
    "max_and_count": "reduction row_reduction single_pass contiguous",
    "mean_variance": (
        "reduction row_reduction single_pass chained_reductions contiguous"
    ),
    "head_norm_rotate": (
        "reduction row_reduction single_pass contiguous broadcast split join"
    ),
    "rotate_halves": "pointwise contiguous broadcast split join",
    "rotate_pairs": "pointwise contiguous broadcast split join",
    "cumsum_looped": "reduction row_reduction single_pass scan contiguous",
    "discounted_returns": "pointwise recurrence contiguous",
    "linear_recurrence": "reduction single_pass scan contiguous",
    "log_softmax_rows": (
        "reduction row_reduction single_pass chained_reductions contiguous"
    ),
    "logsumexp_looped": "reduction row_reduction single_pass online contiguous",
    "masked_softmax": "reduction row_reduction re_read online contiguous broadcast",
    "ssm_chunk_products": "matmul batched",
    "ssm_chunk_scan_fused": "multi_dot state_space batched",
    "decayed_outer_step": "pointwise contiguous broadcast",
    "selective_state_step": "reduction row_reduction single_pass contiguous broadcast",
    "repeated_max": (
        "reduction row_reduction single_pass chained_reductions contiguous join"
    ),
    "expert_histogram": (
        "reduction row_reduction single_pass split_reduction contiguous atomic"
    ),
}

# Of each family, the traits of which every kernel has at least one.
OF_FAMILY: dict[str, set[Trait]] = {
    "attention_forward": {Trait.ATTENTION_FORWARD},
    "attention_decode": {Trait.ATTENTION_FORWARD},
    "attention_paged": {Trait.ATTENTION_FORWARD},
    "attention_backward": {Trait.ATTENTION_BACKWARD},
    "convolution": {Trait.STENCIL},
    "convolution_depthwise": {Trait.STENCIL, Trait.SPLIT},
    "gated_mlp": {Trait.GATED, Trait.CHAINED_DOTS},
    "gather": {Trait.GATHER},
    "jagged": {Trait.JAGGED},
    "kv_cache": {Trait.GATHER, Trait.SCATTER},
    "linear_attention": {Trait.LINEAR_ATTENTION, Trait.SPLIT_K},
    "state_space": {Trait.STATE_SPACE, Trait.BATCHED},
    "matmul": {Trait.PLAIN, Trait.FULL_K, Trait.SPLIT_K},
    "matmul_batched": {Trait.BATCHED},
    "matmul_epilogue": {Trait.POINTWISE_EPILOGUE},
    "matmul_grouped": {Trait.GROUPED, Trait.JAGGED},
    "matmul_low_precision": {Trait.FP8, Trait.INT8, Trait.MIXED_PRECISION},
    "matmul_reduction": {Trait.ROW_REDUCTION_EPILOGUE, Trait.ROW_REDUCTION_PROLOGUE},
    "norm_forward": {Trait.ROW_REDUCTION},
    "norm_backward": {Trait.ROW_REDUCTION, Trait.COLUMN_REDUCTION},
    "reduction": {Trait.ROW_REDUCTION, Trait.COLUMN_REDUCTION},
    "rotary": {Trait.SPLIT},
    "scan": {Trait.SCAN, Trait.RECURRENCE},
    "softmax": {Trait.ONLINE, Trait.CHAINED_REDUCTIONS},
    "top_k": {Trait.ROW_REDUCTION},
}
