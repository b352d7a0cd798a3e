"""Words of gpu_check.py: sentences, the table in Markdown, the exit code."""

TOP_NODES = 5


def sentence(found):
    if "not_run" in found:
        return f"not run: {found['not_run']}"
    if found["problems"]:
        return "WRONG: " + "; ".join(found["problems"])
    return f"right, opened in {found['open_s']:.2f} s, {found['variant']}" + (f"; {found['note']}" if "note" in found else "")


def milliseconds(row, name):
    return f"{row[name + '_ms']:.3f}" if name + "_ms" in row else ""


def time_sentence(row):
    parts = [f"{name} {milliseconds(row, name)} ms" for name in ("quench", "eager", "compiled") if name + "_ms" in row]
    return f"{row['case']}: " + ", ".join(parts)


def wrong(facts):
    return [found for found in facts["results"] if found.get("problems")]


def not_run(facts):
    return [found for found in facts["results"] if "not_run" in found]


def exit_code(facts):
    return 1 if wrong(facts) else 3 if not_run(facts) else 0


def summary(facts):
    bad, missing = wrong(facts), not_run(facts)
    right = len(facts["results"]) - len(bad) - len(missing)
    untimed = [row["case"] for row in facts["times"] if "not_run" in row]
    lines = [f"{right} right, {len(bad)} wrong, {len(missing)} not run, in {facts['seconds']:.0f} s"]
    lines += [f"  {found['case']}: {sentence(found)}" for found in bad + missing]
    if untimed:
        lines.append(f"  not timed: {', '.join(untimed)}")
    return "\n".join(lines)


def ratio(row, name):
    return f"{row[name + '_ms'] / row['quench_ms']:.2f}" if name + "_ms" in row else row.get("torch_problem", "")


def times(facts):
    lines = ["| network | batch | type | Quench ms | PyTorch eager ms | torch.compile ms | eager / Quench | compile / Quench |",
             "|---|---|---|---|---|---|---|---|"]
    for row in facts["times"]:
        cells = [row["network"], row["batch"], row["type"]]
        if "not_run" in row:
            cells += [f"not run: {row['not_run']}", "", "", "", ""]
        else:
            cells += [milliseconds(row, name) for name in ("quench", "eager", "compiled")]
            cells += [ratio(row, name) for name in ("eager", "compiled")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def results(facts, expected):
    bounds = {case["name"]: case for case in expected["cases"]}
    lines = ["| library | variant | first open s | on the host | largest error / bound | result |", "|---|---|---|---|---|---|"]
    for found in facts["results"]:
        case = bounds[found["case"]]
        worst = max(((found.get("errors", {}).get(output["name"], 0) / output["bound"], output["name"]) for output in case["outputs"]
                     if output["bound"] > 0), default=None)
        if "not_run" in found:
            text, worst = f"not run: {found['not_run']}", None
        else:
            text = "; ".join(found["problems"]) or ("right" if worst or "fails" in case else "right, equal to the bit")
            text += f"; {found['note']}" if "note" in found else ""
        ratio_text = f"{worst[0]:.2f} (`{worst[1]}`)" if worst else ""
        opened = f"{found['open_s']:.2f}" if "open_s" in found else ""
        lines.append(f"| {case['name']} | {found.get('variant', '')} | {opened} | {len(case['on_host'])} of {case['kernels']} | "
                     f"{ratio_text} | {text} |")
    return lines


def slowest(facts):
    lines = []
    for found in facts["results"]:
        if found.get("profile"):
            nodes = ", ".join(f"`{name}` {op} {kernel} {ms:.3f}" for ms, name, op, kernel in found["profile"][:TOP_NODES])
            lines.append(f"- **{found['case']}**: {nodes}")
    return lines


def table(facts, expected):
    gpu = facts["gpu"]
    lines = [f"# {gpu['name']}", "",
             f"{gpu['arch']}, {gpu['multiprocessors']} multiprocessors, {gpu['memory'] / 2**30:.0f} GiB, CUDA {gpu['cuda']}, driver "
             f"{gpu['driver'] or 'unknown'}, PyTorch {facts['torch'] or 'not used'}, Quench {facts['revision']}, {facts['date']}.", "",
             summary(facts).split("\n")[0] + ".", "", "## Times", "",
             "Medians of whole runs, inputs and outputs on the GPU. PyTorch computes in f16.", "", *times(facts), "",
             "## Results", "", *results(facts, expected)]
    nodes = slowest(facts)
    if nodes:
        lines += ["", "## Slowest nodes", "", "Milliseconds of the GPU, one run with events around each node.", "", *nodes]
    return "\n".join(lines) + "\n"
