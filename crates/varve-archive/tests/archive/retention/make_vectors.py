#!/usr/bin/env python3
"""Makes vectors.json: the snapshots that restic and borg keep under many policies.

The script makes one restic repository and one borg repository with the same snapshots at chosen
times. It then asks `restic forget --dry-run --json` and `borg prune --dry-run --list` for their
verdict under each policy, and writes the verdicts in the words of Varve's policy file. It uses
Python's standard library only.

    RESTIC=/path/to/restic BORG=/path/to/borg python3 make_vectors.py

OLD_RESTIC may name an older restic: the script then reports the policies for which it disagrees.
"""

import concurrent.futures
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import zoneinfo

RESTIC = os.environ.get("RESTIC", "restic")
OLD_RESTIC = os.environ.get("OLD_RESTIC")
BORG = os.environ.get("BORG", "borg")
ZONE = "Europe/Berlin"
BERLIN = zoneinfo.ZoneInfo(ZONE)
UTC = datetime.timezone.utc
PERIODS = ["hourly", "daily", "weekly", "monthly", "yearly"]
COUNTS = ["last", *PERIODS]
RESTIC_POLICY_COUNT = 200
BORG_POLICY_COUNT = 120
# Policies after these are compared on some of the groups only.
FULL_POLICY_COUNT = 40


def utc(text):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(text):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


def every(minutes, first, last):
    """The times from first to last."""
    step = datetime.timedelta(minutes=minutes)
    return [first + number * step for number in range((last - first) // step + 1)]


def days(first, last, *clock_times):
    """The clock times of each day from first to last, in local time."""
    first, last = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
    dates = [first + datetime.timedelta(days=number) for number in range((last - first).days + 1)]
    return [local(f"{date}T{clock_time}") for date in dates for clock_time in clock_times]


def irregular(dice, first, count, hours_min, hours_max):
    times = [first]
    while len(times) < count:
        times.append(times[-1] + datetime.timedelta(seconds=dice.randint(hours_min * 3600, hours_max * 3600)))
    return times


def make_groups():
    """The times of the snapshots of each group, oldest first."""
    dice = random.Random(31)
    groups = {
        # The clock goes back on 27 October 2024.
        "autumn": every(20, utc("2024-10-26T20:00"), utc("2024-10-27T04:00")) + days("2024-10-15", "2024-11-05", "12:00"),
        # The clock goes forward on 30 March 2025. The newest snapshot is of a 31st.
        "spring": every(30, utc("2025-03-29T22:00"), utc("2025-03-30T04:00")) + days("2025-02-25", "2025-03-31", "09:15"),
        # Weeks of two years, among them week 53 of 2020.
        "iso_years": days("2020-12-26", "2021-01-06", "00:30", "23:30")
        + days("2022-01-01", "2022-01-03", "08:00") + days("2022-12-31", "2023-01-02", "08:00")
        + days("2024-12-27", "2025-01-07", "23:45"),
        # The limit of `--keep-within 1d` lies in the hour that the clock skips.
        "skipped_hour": every(10, utc("2025-03-30T00:00"), utc("2025-03-30T02:00")) + [utc("2025-03-31T00:30")],
        "years": irregular(dice, utc("2014-02-03T04:05:06"), 60, 100, 2000),
        "noise": irregular(dice, utc("2023-04-05T06:07:08"), 50, 0, 300),
        "few": [local(text) for text in ("2023-12-31T10:00", "2024-02-28T10:00", "2024-02-29T10:00", "2024-02-29T18:00")],
        "one_day": every(50, utc("2024-05-01T06:00"), utc("2024-05-01T12:00")),
        "single": [utc("2024-05-01T06:00")],
    }
    return {name: sorted(set(times)) for name, times in groups.items()}


def tags_of(number):
    """Every third snapshot has a tag, every fifth another."""
    return [tag for tag, every in (("a", 3), ("b", 5)) if number % every == 0]


def restic_policies():
    policies = [{f"keep_{rule}": count} for rule in COUNTS for count in (1, 3, "unlimited")]
    policies += [{f"keep_within_{period}": span} for period in PERIODS for span in ("36h", "1m")]
    policies += [{"keep_within": span} for span in ("1h", "1d", "1d1h", "1m", "2m3d", "1y", "1y5m7d2h", "40y")]
    policies += [
        {"keep_tags": ["a"]},
        {"keep_tags": ["a,b"]},
        {"keep_tags": ["a", "b"], "keep_last": 1},
        {"keep_daily": 7, "keep_weekly": 4, "keep_monthly": 12, "keep_yearly": 10},
        {"keep_last": 2, "keep_hourly": 24, "keep_daily": 7, "keep_weekly": 5},
        {"keep_within_daily": "7d", "keep_within_weekly": "1m", "keep_within_monthly": "1y", "keep_within_yearly": "75y"},
    ]
    dice = random.Random(4)
    while len(policies) < RESTIC_POLICY_COUNT:
        policy = {f"keep_{rule}": dice.choice([1, 2, 3, 5, 8, 13, 30, "unlimited"]) for rule in COUNTS if dice.random() < 0.35}
        for rule in ["within", *(f"within_{period}" for period in PERIODS)]:
            if dice.random() < 0.15:
                units = [f"{dice.randint(1, most)}{unit}" for unit, most in (("y", 2), ("m", 13), ("d", 40), ("h", 50)) if dice.random() < 0.4]
                policy |= {f"keep_{rule}": "".join(units) or "5d"}
        if dice.random() < 0.1:
            policy["keep_tags"] = dice.choice([["a"], ["b"], ["a,b"], ["a", "b"]])
        if policy and policy not in policies:
            policies.append(policy)
    return policies


def borg_policies():
    policies = [{f"keep_{rule}": count} for rule in COUNTS for count in (1, 4, "unlimited")]
    policies += [
        {"keep_daily": 7, "keep_weekly": 4, "keep_monthly": 12, "keep_yearly": 10},
        {"keep_last": 2, "keep_hourly": 24, "keep_daily": 7, "keep_weekly": 5},
        {"keep_within": "25m"},
        {"keep_within": "2y", "keep_daily": 3},
        {"keep_within": "600d", "keep_monthly": 3, "keep_yearly": 1},
    ]
    dice = random.Random(5)
    while len(policies) < BORG_POLICY_COUNT:
        policy = {f"keep_{rule}": dice.choice([1, 2, 3, 5, 8, 13, 30, "unlimited"]) for rule in COUNTS if dice.random() < 0.4}
        if dice.random() < 0.2:
            policy["keep_within"] = dice.choice(["20m", "650d", "800d", "21000h", "1y", "3y"])
        if policy and policy not in policies:
            policies.append(policy)
    return policies


def chosen(groups, number):
    """The groups on which the policy with this number is compared."""
    names = list(groups)
    if number < FULL_POLICY_COUNT:
        return names
    return sorted({names[(number * step) % len(names)] for step in (1, 2, 5)})


def run(args, **env):
    done = subprocess.run(args, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{args}: {done.stderr}"
    return done


def by_rule(reasons):
    """The numbers of the kept snapshots under each reason."""
    kept = {}
    for number, reason in sorted(reasons):
        kept.setdefault(reason, []).append(number)
    return kept


def restic_reason(match):
    """Restic's reason without the value of the rule."""
    if match.startswith("has tags"):
        return "tags"
    oldest, match = ("oldest ", match[7:]) if match.startswith("oldest ") else ("", match)
    if match.startswith("within"):
        return "within"
    period, word = match.split(" ")[:2]
    return f"{oldest}{word} {period}" if word == "within" else f"{oldest}{period}"


def restic_flags(policy):
    for key, value in policy.items():
        if key == "keep_tags":
            yield from (f"--keep-tag={tags}" for tags in value)
        else:
            yield f"--{key.replace('_', '-')}={value}"


class Restic:
    def __init__(self, folder, groups):
        self.source = folder / "source"
        self.source.mkdir()
        (self.source / "file").write_text("a file")
        self.env = {"RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": str(folder / "restic")}
        run([RESTIC, "init", "--repository-version=1"], **self.env)
        for group, times in groups.items():
            for number, time in enumerate(times):
                self.back_up(group, number, time)

    def back_up(self, group, number, time):
        # A zone with a fixed offset: restic cannot choose one of the two hours when the clock goes back.
        offset = time.astimezone(BERLIN).utcoffset()
        wall = (time + offset).strftime("%Y-%m-%d %H:%M:%S")
        hours = offset // datetime.timedelta(hours=1)
        tags = [f"--tag={tag}" for tag in tags_of(number)]
        args = [RESTIC, "--no-cache", "backup", "--force", f"--host={group}", f"--time={wall}", *tags, str(self.source)]
        run(args, **self.env, TZ=f"Etc/GMT-{hours}")

    def reasons(self, program, groups, policy):
        args = [program, "--no-cache", "forget", "--dry-run", "--json", "--group-by=host", *restic_flags(policy)]
        env = os.environ | self.env | {"TZ": ZONE}
        done = subprocess.run(args, env=env, capture_output=True, text=True)
        # Restic refuses a policy that keeps none of a group.
        if done.returncode != 0:
            assert "refusing to delete last snapshot" in done.stderr, done.stderr
            return None
        listed = json.loads(done.stdout)
        kept = {}
        for group in listed:
            number_of = {time.timestamp(): number for number, time in enumerate(groups[group["host"]])}
            found = []
            for reason in group["reasons"]:
                time = datetime.datetime.fromisoformat(reason["snapshot"]["time"]).timestamp()
                found += [(number_of[time], restic_reason(match)) for match in reason["matches"]]
            kept[group["host"]] = by_rule(found)
        assert kept.keys() == groups.keys()
        return kept

    def vectors(self, groups):
        for number, policy in enumerate(restic_policies()):
            kept = self.reasons(RESTIC, groups, policy)
            if kept is None:
                print(f"restic refuses {policy}")
                continue
            some = {group: kept[group] for group in chosen(groups, number)}
            yield {"tool": "restic", "policy": policy, "kept": some}
            if OLD_RESTIC and "unlimited" not in policy.values():
                self.compare_with_old(groups, policy, kept)

    def compare_with_old(self, groups, policy, kept):
        """Restic before 0.16 does not keep the oldest snapshot while a rule has room."""
        old = self.reasons(OLD_RESTIC, groups, policy)
        for group, by_reason in kept.items():
            without_oldest = [numbers for reason, numbers in by_reason.items() if not reason.startswith("oldest")]
            if old is not None and set(sum(old[group].values(), [])) != set(sum(without_oldest, [])):
                print(f"{OLD_RESTIC} disagrees: {group}, {policy}")


class Borg:
    def __init__(self, folder, groups):
        self.source = folder / "borg-source"
        self.source.mkdir()
        self.env = {
            "BORG_BASE_DIR": str(folder / "base"),
            "BORG_REPO": str(folder / "borg"),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
            "TZ": ZONE,
        }
        run([BORG, "init", "--encryption=none"], **self.env)
        for group, times in groups.items():
            for number, time in enumerate(times):
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
                run([BORG, "create", f"--timestamp={stamp}", f"::{group}-{number}", str(self.source)], **self.env)

    def vectors(self, groups):
        for number, policy in enumerate(borg_policies()):
            now = datetime.datetime.now(UTC)
            kept = {group: self.kept(group, policy) for group in chosen(groups, number)}
            yield {"tool": "borg", "now": now.isoformat(), "policy": policy, "kept": kept}

    def kept(self, group, policy):
        flags = []
        for key, value in policy.items():
            value = {"unlimited": -1}.get(value, value)
            flags.append(f"--{key.replace('_', '-')}={str(value).replace('h', 'H')}")
        args = [BORG, "prune", "--dry-run", "--list", f"--glob-archives={group}-*", *flags]
        listed = run(args, **self.env).stderr
        found = re.findall(r"Keeping archive \(rule: (\w+)(\[oldest\])? #\d+\): +[a-z_]+-(\d+) ", listed)
        assert len(found) == listed.count("Keeping"), listed
        rules = {"secondly": "last"}
        return by_rule([(int(number), ("oldest " if oldest else "") + rules.get(rule, rule)) for rule, oldest, number in found])


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def main():
    groups = make_groups()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with concurrent.futures.ThreadPoolExecutor() as workers:
            makers = [workers.submit(lambda tool=tool: list(tool(folder, groups).vectors(groups))) for tool in (Restic, Borg)]
            vectors = [vector for maker in makers for vector in maker.result()]
    restic = run([RESTIC, "version"]).stdout.split(" compiled")[0].strip()
    borg = run([BORG, "--version"]).stdout.strip()
    snapshots = {
        group: [{"time": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "tags": tags_of(number)} for number, time in enumerate(times)]
        for group, times in groups.items()
    }
    head = [f'"made_with":{compact([restic, borg])}', f'"zone":{compact(ZONE)}']
    head += ['"groups":{\n' + ",\n".join(f"{compact(name)}:{compact(all)}" for name, all in snapshots.items()) + "\n}"]
    head += ['"vectors":[\n' + ",\n".join(map(compact, vectors)) + "\n]"]
    path = pathlib.Path(__file__).with_name("vectors.json")
    path.write_text("{\n" + ",\n".join(head) + "\n}\n")
    print(f"{len(vectors)} policies over {len(groups)} groups, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
