"""`warpsmith machine`: list, show, diff, check."""


def test_machine_list(warpsmith):
    got = warpsmith("machine", "list")
    assert got.code == 0 and "h100" in got.out and "h200" in got.out


def test_machine_show_gives_value_status_and_source(warpsmith):
    got = warpsmith("machine", "show", "h200", "unit.sfu")
    assert got.code == 0
    assert "unit.sfu.lanes" in got.out and "16" in got.out and "derived" in got.out and "MUFU" in got.out


def test_machine_show_obeys_overrides(warpsmith):
    got = warpsmith("machine", "show", "h200", "timing.mufu.interval", "--set", "unit.sfu.lanes=32")
    assert got.code == 0 and " 4 " in got.out


def test_machine_diff(warpsmith):
    got = warpsmith("machine", "diff", "h100", "h200")
    assert got.code == 0 and "unit.hbm.gb_per_s" in got.out and "unit.sfu.lanes" not in got.out


def test_machine_check(warpsmith, tmp_path):
    assert "no findings" in warpsmith("machine", "check", "h200").out
    path = tmp_path / "bad.toml"
    path.write_text('extends = "h200"\n[unit.sfu]\nlane = { value = 1, source = "s", status = "assumed" }')
    got = warpsmith("machine", "check", str(path))
    assert got.code == 2 and "did you mean 'unit.sfu.lanes'" in got.err and not got.out


def test_unknown_machine(warpsmith):
    got = warpsmith("machine", "show", "h2000")
    assert got.code == 2 and "did you mean 'h200'" in got.err
