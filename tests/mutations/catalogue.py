"""The faults: one changed place each, six to an area or more.

Every fault changes a result, an error or a file that users can see; changes of speed or memory alone, of wording, and
of assertions that cannot fail are not faults here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Mutation(NamedTuple):
    """A fault.

    Attributes
    ----------
    area
        Part of the pipeline.
    module
        File, relative to the package.
    before
        Text that occurs once in the file.
    after
        What replaces it.
    """

    area: str
    module: str
    before: str
    after: str


_FAULTS: Final[dict[str, list[tuple[str, str, str]]]] = {
    "kernels": [
        ("kernels/bisection.py", "        if values[middle] < wanted:\n", "        if values[middle] <= wanted:\n"),
        ("kernels/reciprocal.py", "values[side, m] / n_places", "values[side, m] / (n_places + 1)"),
        (
            "kernels/trials.py",
            "== 0:\n            curves[q] = np.nan\n            continue\n        curves[q] = 0.0\n",
            "== 1:\n            curves[q] = np.nan\n            continue\n        curves[q] = 0.0\n",
        ),
        ("kernels/counting.py", "certain = max(int(passed), nearer)", "certain = int(passed)"),
        ("kernels/counting.py", "if nearer > certain:", "if nearer < certain:"),
        ("kernels/vectors.py", "for i in range(n_turns * _TURN, dim):", "for i in range(dim, dim):"),
        ("kernels/counting.py", "lowest = lowers[last - 1] - extra", "lowest = lowers[last - 1]"),
        ("kernels/counting.py", "lower[u] - extra, upper[u] + extra", "lower[u] - extra, upper[u]"),
        (
            "kernels/placing.py",
            "scale[column] * factor) - less[column]",
            "scale[column] * factor)",
        ),
        ("kernels/placing.py", "        return -1, n, inside", "        return n_settled, n, inside"),
        ("kernels/placing.py", "        return -1, n, inside", "        return -1, n + inside, inside"),
        (
            "kernels/counting.py",
            "n_known = take_known(tile, q, values, row.known, row.known_value) if has_known else 0",
            "n_known = 0",
        ),
        (
            "kernels/impostors.py",
            "n_known = take_known(tile, q, values, known, known_value) if len(tile.known) > 0 else 0",
            "n_known = 0",
        ),
        ("kernels/placing.py", "n += int(values[column] > -np.inf)", "n += 1"),
        (
            "kernels/placing.py",
            "values[column[hidden] - start] = -np.inf",
            "values[column[hidden] - start] += 0",
        ),
        (
            "kernels/counting.py",
            "group = group_of[columns[p]] if are_grouped else 0",
            "group = 0",
        ),
        (
            "kernels/placing.py",
            "lower[u] - extra, upper[u] + extra",
            "lower[u] - extra, upper[u]",
        ),
        ("kernels/tiles.py", "np.float32(crossed) * _SHARE) * scale)", "np.float32(crossed)) * scale)"),
        ("kernels/quantising.py", "bounds[i] = np.float64(largest)", "bounds[i, :2] = np.float64(largest)"),
        ("kernels/placing.py", "place_among(lower, values[p] + fine)", "place_among(lower, values[p])"),
        ("kernels/placing.py", "values[p] - fine > upper[a]", "values[p] > upper[a]"),
        (
            "kernels/placing.py",
            "value + 2 * spared[column] > wide_upper[a]",
            "value + 4 * spared[column] > wide_upper[a]",
        ),
        ("kernels/placing.py", "tile.bias + tile.spared", "tile.bias + 2 * tile.spared"),
        ("kernels/symmetric.py", "scale[c] * factor) - less[c]", "scale[c] * factor)"),
        ("kernels/symmetric.py", "lists.level[item] = lowered(level - more)", "lists.level[item] = lowered(level)"),
        ("kernels/symmetric.py", "lists.epsilon[item] += more", "lists.epsilon[item] += 0.0"),
        (
            "kernels/symmetric.py",
            "(value + error >= list_level[q] and value < first)",
            "(value >= list_level[q] and value < first)",
        ),
        ("kernels/symmetric.py", "(theirs + error >= column_level[c])", "(theirs >= column_level[c])"),
        ("kernels/symmetric.py", "(theirs - error <= column_least[c])", "(theirs <= column_least[c])"),
        ("kernels/symmetric.py", "band = 2.0 * lists.epsilon[q] + np.float64(extra)", "band = 2.0 * lists.epsilon[q]"),
        ("kernels/symmetric.py", "if is_near and value >= list_level[q]:", "if value >= list_level[q]:"),
        (
            "engine/distances/quantised.py",
            "self.bounds[consecutive(rows), 0].min()",
            "self.bounds[consecutive(rows), 0].max()",
        ),
        (
            "kernels/symmetric.py",
            "        hide_columns(q, side.struck_indptr, side.struck, start, values)\n",
            "",
        ),
        ("kernels/exponential.py", "f = (m - 1.0) / (m + 1.0)", "f = (m + 1.0) / (m + 1.0)"),
    ],
    "reductions": [
        ("engine/reductions/identities.py", "kept -= np.searchsorted(rows", "kept += np.searchsorted(rows"),
        ("engine/reductions/bands.py", "self._number_of[decided.column]", "self._number_of[decided.query]"),
        ("engine/distances/integers.py", "return product if _is_exact(product) else None", "return product"),
        (
            "engine/distances/quantised.py",
            "np.int32(LARGEST_INTEGER) * total",
            "np.int32(LARGEST_INTEGER + 1) * total",
        ),
        ("engine/distances/quantised.py", "bounds.max(axis=0, initial=0.0)", "bounds.min(axis=0, initial=1e9)"),
        ("engine/distances/quantised.py", "(length + left) * most_left", "left * most_left"),
        ("engine/distances/quantised.py", "omitted = left * longest +", "omitted = 0.0 * longest +"),
        ("engine/distances/quantised.py", "(residual + left) * (most + most_left)", "left * (most + most_left)"),
        (
            "engine/distances/quantised.py",
            "transpose_integers(self.both[:, : self._dim]",
            "transpose_integers(self.both[:, self._dim :]",
        ),
        ("engine/reductions/bands.py", "                self._decide()\n", "                self._n_open = 0\n"),
        ("engine/reductions/bands.py", "Rest(self._open, self._n_open, done,", "Rest(self._open, self._n_open, 0,"),
        ("engine/tile_loop.py", "np.maximum.reduce(own)", "np.minimum.reduce(own)"),
        ("engine/reductions/costs.py", '"int8", _NOT_BINNED, _DECIDED', '"int8", _NOT_BINNED, _NOT_BINNED'),
        (
            "engine/reductions/targets.py",
            "start = run_offsets(distance, owner)",
            "start = run_offsets(distance)",
        ),
        ("engine/reductions/key_counts.py", "np.where(bits < 0,", "np.where(bits <= 0,"),
        ("engine/reductions/surroundings.py", "sign * lists.epsilon[item]", "sign * 0.0 * lists.epsilon[item]"),
        ("engine/reductions/base.py", "return within, row[within] - first", "return within, row[within] + first"),
        ("engine/reductions/surroundings.py", "(hidden.crosses or self.drops_single_rows)", "hidden.crosses"),
        (
            "engine/reductions/impostor_counts.py",
            "self._below += np.diff(ends, prepend=0)[::2]",
            "self._below -= np.diff(ends, prepend=0)[::2]",
        ),
        ("engine/reductions/impostor_counts.py", "2 * bracket + NEEDS_VALUE", "2 * bracket + 2 + NEEDS_VALUE"),
        (
            "engine/reductions/impostor_counts.py",
            "at_place[begin:first] = 2 * bracket",
            "at_place[begin:first] = 0",
        ),
        ("engine/threshold_passes.py", "dtype=np.int64)[:, ::2]", "dtype=np.int64)[:, 1::2]"),
        ("engine/reductions/identities.py", "[self.of_row[hidden.row] >= 0]", "[self.of_row[hidden.row] > 0]"),
    ],
    "relevance": [
        ("relevance/assignment.py", "reason[empty & (same_camera > 0)]", "reason[empty & (same_camera >= 0)]"),
        ("relevance/assignment.py", "if needed and not (query.has(name)", "if needed or not (query.has(name)"),
        (
            "relevance/assignment.py",
            "n_junk = n_junk + np.bincount(extra_query",
            "n_junk = n_junk - np.bincount(extra_query",
        ),
        ("relevance/assignment.py", "np.where(values == UNKNOWN_CAMERA, _NO_ROW, values)", "values"),
        (
            "relevance/ground_truth/ground_truth_source.py",
            "if not 0 <= value < n_gallery:",
            "if not 0 <= value <= n_gallery:",
        ),
        (
            "relevance/protocols.py",
            '        if name not in known:\n            raise unknown_name("list of',
            '        if name is None:\n            raise unknown_name("list of',
        ),
        ("relevance/ground_truth/ground_truth_files.py", "if len(queries) != n_query:", "if len(queries) > n_query:"),
    ],
    "metrics": [
        ("metrics/chance.py", "4 * (m - once - pairs / 2)", "2 * (m - once - pairs / 2)"),
        ("evaluation/chance_level.py", "abs(self.order - 0.5) <= self.order_width", "self.order_width"),
        ("metrics/ties.py", "+ ranked.tied[start] - 1\n", "+ ranked.tied[start] + 1\n"),
        ("metrics/ties.py", "least = max(0, k - s - n_negative)", "least = max(1, k - s - n_negative)"),
        ("metrics/listed.py", "(index >= n_gallery) | (index < -1)", "(index > n_gallery) | (index < -1)"),
        ("metrics/listed.py", "n_kept[of] - n_relevant[of] + number", "n_kept[of] - n_relevant[of] - number"),
        (
            "metrics/confidence.py",
            "p_values = as_far / n_all if is_exact else (1 + as_far) / (1 + n_resamples)",
            "p_values = as_far / n_all if is_exact else as_far / (1 + n_resamples)",
        ),
        ("metrics/metric.py", "if text in METRICS and not METRICS", "if text in METRICS or not METRICS"),
    ],
    "stores": [
        ("stores/labels.py", "min(2**bits, _LARGEST)", "min(2**53, _LARGEST)"),
        ("stores/importers/hdf5_files.py", "get_fields()[-1]) + 1", "get_fields()[-1]) + 100"),
        ("stores/importers/label_tables.py", "2 * gallery.astype(np.int32)", "gallery.astype(np.int32)"),
        ("stores/importers/label_tables.py", "values[first] != values[other]", "values[first] != values[first]"),
        ("stores/repeated_items.py", "return rows[~is_first]", "return rows"),
        (
            "stores/sparse.py",
            "lambda piece: piece.digest() == digest",
            "lambda piece: piece.digest() is not None",
        ),
        ("stores/writer.py", "if self.n_rows and blocks.keys() != self._label_blocks.keys():", "if self.n_rows < 0:"),
        (
            "stores/featureset.py",
            "yield features._read_kept(start, stop)[rows[low:high] - start]",
            "yield features._read_kept(start, stop)[rows[low:high] - rows[low]]",
        ),
        ("stores/fused.py", "math.sqrt(weight) * unit_rows", "weight * unit_rows"),
        (
            "stores/stored.py",
            "if part is not None and self._checks.agree(rows, row_checksums(part)):",
            "if part is not None:",
        ),
        (
            "stores/stored.py",
            "if hasher.hexdigest() == manifest.chunk_digests[chunk]:",
            "if take is not None or hasher.hexdigest() == manifest.chunk_digests[chunk]:",
        ),
        (
            "stores/stored.py",
            "if hasher.hexdigest() == manifest.chunk_digests[chunk]:",
            "if take is None or hasher.hexdigest() == manifest.chunk_digests[chunk]:",
        ),
        ("stores/digests.py", "if self._known[chunk] or chunk in self._begun:", "if chunk in self._begun:"),
        (
            "stores/distance_block.py",
            "if not self._checks.agree(cells.ravel(), checksums.ravel()):",
            "if self._checks is None:",
        ),
        ("stores/distance_block.py", "if blake3(bytes_of(rows)).digest() != self._digests[band]:", "if rows is None:"),
        ("stores/fused.py", "if (near != far).any():", "if (near != far).all():"),
        ("stores/fused.py", "column += part.dim\n        return rows", "column += 1\n        return rows"),
        ("stores/importers/torch_files.py", 'if order == "big" else', 'if order != "big" else'),
        ("stores/kept_rows.py", "if n_rows == 0 or dim == 0:", "if n_rows == 0 and dim == 0:"),
        ("stores/layout.py", 'if marker.get("manifest_digest") != digest_json(written):', "if not written:"),
        (
            "stores/store_appender.py",
            "if old.file_of_chunk(chunk) != file and folder.size(file) is not None",
            "if folder.size(file) is not None",
        ),
        ("stores/store_appender.py", "part.first_chunk < first_chunk]", "part.first_chunk <= first_chunk]"),
        ("stores/store_appender.py", "rows[max(0, first_hashed - held.start) :]", "rows"),
        ("stores/store_appender.py", "for manifest in (old, new)}", "for manifest in (new,)}"),
        ("stores/objects.py", 'mode={"e_tag": found.meta["e_tag"]}', 'mode="overwrite"'),
        ("stores/folders.py", "if self.read(name) != expected:", "if self.read(name) is None:"),
        ("stores/writer.py", ".append(np.array(values))", ".append(values)"),
    ],
    "workspace": [
        ("stores/archive.py", "            if found != identity:\n", "            if found is None:\n"),
        (
            "stores/workspace.py",
            "if not isinstance(content, dict) or content.pop(_CHECKSUM, None) != _checksum_of(self._name, content):",
            "if not isinstance(content, dict) or content.pop(_CHECKSUM, None) is None:",
        ),
        ("stores/workspace.py", "if found is None or found[1] != self.checksum:", "if found is None:"),
        (
            "stores/workspace.py",
            "(name.startswith(NESTED) and Workspace(where).holds_parts())",
            "(name.startswith(NESTED) and Workspace(where).kinds() is None)",
        ),
        ("stores/workspace.py", "        self.remove(*foreign)\n", ""),
        (
            "stores/workspace.py",
            "    if not stage.has(part):\n        return None\n",
            "    if stage.has(part):\n        return None\n",
        ),
    ],
    "re-ranking": [
        (
            "stages/parts.py",
            "parts = Parts(kept, stage.blocks.adopted(description))",
            "parts = Parts(kept, stage.blocks)",
        ),
        (
            "stages/parts.py",
            "rows[held_by == block] - self.blocks.rows(block).start",
            "rows[held_by == block] - self.blocks.rows(block).start // 2",
        ),
        ("stages/search_plan.py", "self.kept + after.workspace_bytes", "after.workspace_bytes"),
        ("stages/reranking/top.py", "distinct - (distinct[-1] + 1.0)", "distinct - (distinct[0] + 1.0)"),
        (
            "stages/reranking/k_reciprocal.py",
            "return self.k1 + int(self.rules.lists_and_self)",
            "return self.k1 - int(self.rules.lists_and_self)",
        ),
        ("stages/reranking/neighbour_graph.py", "items[wanted] - cut.start)", "items[wanted] - cut.start - 1)"),
        (
            "stages/reranking/k_reciprocal.py",
            "returned = distance < np.append(last, -np.inf)",
            "returned = distance <= np.append(last, -np.inf)",
        ),
        (
            "stages/reranking/ecn.py",
            "np.count_nonzero(place >= 0, axis=1)",
            "np.count_nonzero(place > 0, axis=1)",
        ),
        ("engine/reductions/surroundings.py", "np.maximum(one.farthest, other.farthest)", "one.farthest"),
    ],
    "expansion": [
        ("stages/items.py", "np.where(label == self.apart, own, label)", "label"),
        ("stages/expansion/neighbour_averages.py", "    if (own_row < 0).all():\n", "    if len(own_row) == 0:\n"),
        ("stages/neighbour_search.py", "first = int(self.own_first)", "first = 1"),
        ("core/parameters.py", "else low <= value <= high)", "else low - 1 <= value <= high)"),
        ("stages/expansion/expansion_steps.py", "return max(0, self.k - 1) if", "return max(0, self.k) if"),
        ("stages/expansion/neighbour_averages.py", "others.start + here, weight", "here, weight"),
        (
            "stages/row_groups.py",
            "pid_place.astype(np.int64) * len(camids) + camid_place",
            "pid_place.astype(np.int64) * (len(camids) - 1) + camid_place",
        ),
        (
            "stages/pooling_job.py",
            "if zero_groups and not job.allow_zero:",
            "if zero_groups and job.allow_zero is None:",
        ),
    ],
    "verification": [
        (
            "engine/verification/measures.py",
            "return Level(1, 0, number) if number <= n_impostor else None",
            "return Level(1, 0, number) if number < n_impostor else None",
        ),
        (
            "engine/verification/measures.py",
            "return float(self.non_mated[number - 1]) if number <= len",
            "return float(self.non_mated[number - 1]) if number < len",
        ),
        ("engine/verification/measures.py", "sums = near[0] + near[1],", "sums = near[0] - near[1],"),
        ("engine/verification/measures.py", "return roc or bool(", "return roc and bool("),
        (
            "engine/verification/crossings.py",
            'nearer(place, "left"), nearer(place, "right"))',
            'nearer(place, "left"), nearer(place, "left"))',
        ),
        ("engine/reductions/key_counts.py", "+ slack) / self.weight, LOWEST)", "+ slack) / self.weight, -np.inf)"),
        (
            "engine/verification/crossings.py",
            "keys = np.union1d(keys, genuine >> shift)",
            "keys = np.union1d(keys, genuine)",
        ),
    ],
    "command line": [
        (
            "evaluation/runner.py",
            '    if others:\n        raise InputError(\n            f"{path.parent} holds',
            '    if not found:\n        raise InputError(\n            f"{path.parent} holds',
        ),
        (
            "evaluation/checked_options.py",
            "\n    return spelled(steps)",
            "\n    return steps[0].name",
        ),
        ("evaluation/study.py", "with stage_lock(str(folder), session.warn):", "if True:"),
        ("stages/session.py", "os.path.isfile, block.uri", "os.path.isabs, block.uri"),
        (
            "cli/click_options.py",
            'if given["image_root"] is not None and given["pictures"] is None:',
            'if given["image_root"] == given:',
        ),
        (
            "reports/report_files.py",
            "    if path.exists():",
            "    if not path.parent.exists():",
        ),
        (
            "cli/plan_command.py",
            "if threads is not None or memory_gib is not None:",
            "if threads is not None and memory_gib is not None:",
        ),
        (
            "cli/history_command.py",
            "if found and found[-1][1] == number - 1:",
            "if found and found[-1][1] <= number - 1:",
        ),
        (
            "reports/tabular/table.py",
            'return "0.00" if difference == 0 else',
            'return "0.00" if abs(difference) < 5e-5 else',
        ),
    ],
    "benchmarks": [
        (
            "evaluation/benchmarks/benchmark.py",
            "if _is_given(value := given.get(option)) and not _agrees(value, wanted)",
            "if _is_given(value := given.get(option)) and value == wanted == ()",
        ),
        (
            "evaluation/benchmarks/variants.py",
            "(name, value, value - before)",
            "(name, value, before - value)",
        ),
        ("evaluation/convention_table.py", "<= self.half", "<= 2 * self.half"),
        ("engine/outputs/protocol_ranks.py", "| self.indexes[place].mask.junk_row[row]", ""),
        (
            "stores/importers/row_lists.py",
            "each[:per_identity].astype(np.int64) - 1",
            "each[:1].astype(np.int64) - 1",
        ),
        ("engine/reductions/group_counts.py", "is_open = held < size[group]", "is_open = held < size[group] - 1"),
        ("kernels/group_places.py", "least[group] = min(np.int64(least[group]), ", "least[group] = max(0, "),
        (
            "metrics/metric.py",
            "exact_mean(values[counted[rows]])",
            "exact_mean(values[counted[rows[:1]]])",
        ),
    ],
    "lists": [
        ("reports/failure_kinds.py", "enough &= first < cameras.max(", "enough &= first <= cameras.max("),
        ("reports/failure_kinds.py", "wrong_first = valid & ", "wrong_first = "),
        ("reports/failure_kinds.py", "kept = kept & ~topk.junk[rows]", "kept = kept & topk.junk[rows]"),
        ("reports/browse/server.py", "if host not in (", "if host in ("),
        ("reports/browse/server.py", "not hmac.compare_digest(path[1], self.server.token)", "not path[1]"),
        ("reports/browse/subject.py", "loss=-pair.difference", "loss=pair.difference"),
        ("reports/plots/curve_charts.py", "highs[:-1] -= 0.0002", "highs[:-1] -= 0"),
        ("reports/pictures.py", "items[:depth], items[depth:]", "items[:depth], []"),
        ("evaluation/report_assembly.py", "nearest = items.indptr[:-1]", "nearest = items.indptr[1:] - 1"),
        ("evaluation/counted_rows.py", 'self.rows[0][each["queries"]].tolist()', 'each["queries"]'),
        ("reports/thumbnails.py", "for root in self._roots:", "for root in self._roots[:1]:"),
    ],
    "device": [
        (
            "engine/reductions/device_integers.py",
            "wide = thresholds.widened(device.upload(self._errors(own)))",
            "wide = thresholds",
        ),
        ("engine/reductions/device_integers.py", "rows.level - of_row", "rows.level"),
        ("engine/reductions/device_integers.py", "columns.level - most", "columns.level"),
        ("engine/reductions/device_integers.py", "columns.least + most", "columns.least"),
        (
            "engine/reductions/device_integers.py",
            "self._refined(own, row, column) - bias[column]",
            "self._refined(own, row, column)",
        ),
        ("engine/reductions/device_integers.py", "value -= self.device.upload(self._bias)[column]", "value -= 0"),
        (
            "engine/reductions/device_integers.py",
            "            values[known[0], known[1]] = -torch.inf\n",
            "            pass\n",
        ),
        (
            "engine/reductions/device_integers.py",
            "refined.what >= thresholds.lowest[refined.row]",
            "refined.what > -torch.inf",
        ),
        ("engine/reductions/device_integers.py", "(rows - whole * scale).norm(dim=1)", "(rows - rows).norm(dim=1)"),
        ("engine/reductions/device_products.py", "+ (0.0 if errors is None else errors)", ""),
        (
            "engine/reductions/device_products.py",
            "            numbers[:, thresholds.indptr[placing.n_fitting] :] = 0\n",
            "",
        ),
        (
            "engine/reductions/device_products.py",
            "            values.masked_fill_(kinds[1][kinds[0]], -torch.inf)\n",
            "            pass\n",
        ),
        (
            "engine/reductions/device_tiles.py",
            "self._known[1][place].masked_fill(hidden, -self.device.torch.inf)",
            "self._known[1][place]",
        ),
        ("engine/reductions/scans.py", "self.lower - more, self.upper + more", "self.lower - more, self.upper"),
        (
            "engine/reductions/scans.py",
            "visible = ~kinds[1][kinds[0][pairs[0]], pairs[1]]",
            "visible = kinds[0][pairs[0]] >= 0",
        ),
        ("engine/reductions/device_keys.py", "places < 2 * LARGEST_KEY", "places <= 2 * LARGEST_KEY"),
        (
            "engine/reductions/device_keys.py",
            "return device.download(counts)[: 2 * n_gaps : 2]",
            "return device.download(counts)[2 : 2 * n_gaps + 2 : 2]",
        ),
        ("engine/reductions/device_keys.py", "(near != far) | (near % 2 == 1)", "near != far"),
        ("clusters/own_gpu.py", "gpus[int(number[0]) % len(gpus) if number else 0]", "gpus[0]"),
    ],
}

MUTATIONS: Final[tuple[Mutation, ...]] = tuple(
    Mutation(area, *fault) for area, faults in _FAULTS.items() for fault in faults
)
