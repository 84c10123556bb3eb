//! The memory budget of a store that sets none: a share of the memory of the machine.
//!
//! | file                                                  | content                                |
//! |-------------------------------------------------------|----------------------------------------|
//! | `/proc/meminfo`                                       | physical memory                        |
//! | `/proc/self/cgroup`                                   | control groups of this process         |
//! | `/sys/fs/cgroup/GROUP/memory.max`                     | limit of a group, or `max` (cgroup v2) |
//! | `/sys/fs/cgroup/memory/GROUP/memory.limit_in_bytes`   | limit of a group (cgroup v1)           |
//!
//! The limits of a group also bind the groups below it, so the smallest limit from the group of the
//! process up to the root counts. Only one version has the memory controller, so the files of the
//! other one are missing. Formats: the kernel's `admin-guide/cgroup-v2.rst` and
//! `admin-guide/cgroup-v1/memory.rst`, `cgroups(7)`, `proc_meminfo(5)`.
//!
//! The system call `sysinfo` also returns the physical memory. It is not used: `rustix` takes it
//! for infallible, and a seccomp filter may refuse it.

use std::{
    fmt,
    path::{Component, Path},
};

use crate::fs::Fs;

/// Divisor of the memory of the machine for the default of
/// [`Options::memory_budget`](crate::Options::memory_budget): 8.
pub const DEFAULT_MEMORY_BUDGET_SHARE: u64 = 8;

/// Minimum default of [`Options::memory_budget`](crate::Options::memory_budget): 64 MiB.
pub const DEFAULT_MEMORY_BUDGET_MIN: u64 = 64 << 20;

/// Maximum default of [`Options::memory_budget`](crate::Options::memory_budget): 1 GiB.
pub const DEFAULT_MEMORY_BUDGET_MAX: u64 = 1 << 30;

/// Default of [`Options::memory_budget`](crate::Options::memory_budget) if the memory of the
/// machine is unknown: 256 MiB.
pub const FALLBACK_MEMORY_BUDGET: u64 = 256 << 20;

/// Larger limits mean none: without a limit, cgroup v1 reports the largest multiple of a page.
const UNLIMITED_BYTES: u64 = 1 << 60;

const CGROUP_V2: &str = "/sys/fs/cgroup";
const CGROUP_V1: &str = "/sys/fs/cgroup/memory";

/// Source of a store's memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum BudgetSource {
    /// The user: [`Options::memory_budget`](crate::Options::memory_budget) or
    /// [`Db::set_memory_budget`](crate::Db::set_memory_budget).
    Set,
    /// Default: a share of the physical memory.
    PhysicalMemory,
    /// Default: a share of the memory limit of a control group (cgroup). The physical memory is
    /// larger or unknown.
    ControlGroup,
    /// Default for an unknown machine: [`FALLBACK_MEMORY_BUDGET`].
    Fallback,
    /// A pool that several stores share: [`Options::memory_pool`](crate::Options::memory_pool).
    Pool,
}

impl BudgetSource {
    /// In the order of the file `STATS`, which must not change.
    pub(crate) const ALL: [Self; 5] =
        [Self::Set, Self::PhysicalMemory, Self::ControlGroup, Self::Fallback, Self::Pool];
}

impl fmt::Display for BudgetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set by the user",
            Self::PhysicalMemory => "default, from physical memory",
            Self::ControlGroup => "default, from the limit of the control group",
            Self::Fallback => "default, memory of the machine unknown",
            Self::Pool => "shared by the stores of a memory pool",
        })
    }
}

/// The memory budget of a store that sets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultBudget {
    pub(crate) bytes: u64,
    pub(crate) source: BudgetSource,
}

impl Default for DefaultBudget {
    fn default() -> Self {
        Self { bytes: FALLBACK_MEMORY_BUDGET, source: BudgetSource::Fallback }
    }
}

impl DefaultBudget {
    /// Reads the limits of the machine that `fs` belongs to, as they are now.
    pub(crate) fn of_machine(fs: &dyn Fs) -> Self {
        let read = |path: &Path| fs.read_system_file(path).ok();
        let physical_bytes = read(Path::new("/proc/meminfo")).and_then(|it| physical_bytes(&it));
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        Self::of(physical_bytes, group_limit_bytes(&groups, read))
    }

    fn of(physical_bytes: Option<u64>, group_limit_bytes: Option<u64>) -> Self {
        let (memory_bytes, source) = match (physical_bytes, group_limit_bytes) {
            (None, None) => return Self::default(),
            (Some(physical), Some(limit)) if limit < physical => {
                (limit, BudgetSource::ControlGroup)
            }
            (Some(physical), _) => (physical, BudgetSource::PhysicalMemory),
            (None, Some(limit)) => (limit, BudgetSource::ControlGroup),
        };
        let bytes = memory_bytes / DEFAULT_MEMORY_BUDGET_SHARE;
        let bytes = bytes.clamp(DEFAULT_MEMORY_BUDGET_MIN, DEFAULT_MEMORY_BUDGET_MAX);
        Self { bytes, source }
    }
}

/// Returns `MemTotal` of the text of `/proc/meminfo`.
fn physical_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// Returns the smallest memory limit of the control groups in `groups`, the text of
/// `/proc/self/cgroup`, and of the groups above them.
///
/// A file that `read` does not find limits nothing. That is so for the root of the hierarchy, and
/// for groups above those that a container sees: there the root has the limit of the container.
fn group_limit_bytes(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let (mount, file, group) = limit_files(line)?;
        // The path of a group outside of the namespace begins with `/..`. Its files are not
        // visible.
        let group = Path::new(group.trim_start_matches('/'));
        let is_outside = group.components().any(|part| part == Component::ParentDir);
        let group = if is_outside { Path::new("") } else { group };
        let mount = Path::new(mount);
        let texts = group.ancestors().map(|above| read(&mount.join(above).join(file)));
        texts.flatten().filter_map(|text| limit_bytes(&text)).min()
    });
    limits.min()
}

/// Returns mount point, name of the limit's file, and group of one line of `/proc/self/cgroup`,
/// `ID:CONTROLLERS:GROUP`, if it may be about memory.
fn limit_files(line: &str) -> Option<(&'static str, &'static str, &str)> {
    let (id, rest) = line.split_once(':')?;
    // The path may have colons.
    let (controllers, group) = rest.split_once(':')?;
    if id == "0" && controllers.is_empty() {
        return Some((CGROUP_V2, "memory.max", group));
    }
    let is_memory = controllers.split(',').any(|controller| controller == "memory");
    is_memory.then_some((CGROUP_V1, "memory.limit_in_bytes", group))
}

/// Returns the limit in a file of a control group, unless it is `max` or effectively unlimited.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes < UNLIMITED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    /// Value that cgroup v1 reports without a limit.
    const V1_UNLIMITED: &str = "9223372036854771712\n";

    #[test]
    fn the_default_is_an_eighth_of_the_smaller_within_bounds() {
        use BudgetSource::{ControlGroup, Fallback, PhysicalMemory};
        let cases = [
            ("unknown", None, None, 256 * MIB, Fallback),
            ("a small server", Some(4 * GIB), None, 512 * MIB, PhysicalMemory),
            ("a large one", Some(256 * GIB), None, GIB, PhysicalMemory),
            ("just the largest", Some(8 * GIB), None, GIB, PhysicalMemory),
            ("a small board", Some(256 * MIB), None, 64 * MIB, PhysicalMemory),
            ("just above the least", Some(520 * MIB), None, 65 * MIB, PhysicalMemory),
            ("nothing", Some(0), None, 64 * MIB, PhysicalMemory),
            ("a container", Some(64 * GIB), Some(2 * GIB), 256 * MIB, ControlGroup),
            ("a large container", Some(64 * GIB), Some(32 * GIB), GIB, ControlGroup),
            ("a tiny container", Some(64 * GIB), Some(1), 64 * MIB, ControlGroup),
            ("a limit of all", Some(4 * GIB), Some(4 * GIB), 512 * MIB, PhysicalMemory),
            ("a limit of more than all", Some(4 * GIB), Some(8 * GIB), 512 * MIB, PhysicalMemory),
            ("a limit alone", None, Some(4 * GIB), 512 * MIB, ControlGroup),
        ];
        for (name, physical, limit, bytes, source) in cases {
            let want = DefaultBudget { bytes, source };
            assert_eq!(DefaultBudget::of(physical, limit), want, "{name}");
        }
    }

    #[test]
    fn physical_memory_is_found_or_unknown() {
        let real = "MemTotal:       24683520 kB\nMemFree:        13209404 kB\n";
        let cases = [
            ("Linux", real, Some(24_683_520 << 10)),
            ("not the first line", "MemFree: 1 kB\nMemTotal: 2 kB\n", Some(2_048)),
            ("empty", "", None),
            ("without the line", "MemFree: 1 kB\n", None),
            ("without a unit", "MemTotal: 1024\n", None),
            ("no number", "MemTotal: much kB\n", None),
            ("beyond any", "MemTotal: 18446744073709551615 kB\n", None),
        ];
        for (name, text, want) in cases {
            assert_eq!(physical_bytes(text), want, "{name}");
        }
    }

    #[test]
    fn the_smallest_limit_up_to_the_root_counts() {
        type Case<'t> = (&'t str, &'t str, &'t [(&'t str, &'t str)], Option<u64>);
        let cases: [Case<'_>; 18] = [
            ("no control groups", "", &[], None),
            ("root of the machine", "0::/\n", &[], None),
            ("namespace", "0::/\n", &[("memory.max", "1000\n")], Some(1_000)),
            ("no limit", "0::/\n", &[("memory.max", "max\n")], None),
            (
                "own group",
                "0::/a/b\n",
                &[("a/b/memory.max", "7\n"), ("a/memory.max", "9")],
                Some(7),
            ),
            ("parent", "0::/a/b\n", &[("a/b/memory.max", "9\n"), ("a/memory.max", "7")], Some(7)),
            (
                "max below",
                "0::/a/b\n",
                &[("a/b/memory.max", "max\n"), ("memory.max", "7")],
                Some(7),
            ),
            (
                "max above",
                "0::/a/b\n",
                &[("a/b/memory.max", "7\n"), ("memory.max", "max")],
                Some(7),
            ),
            ("missing files", "0::/a/b/c\n", &[("a/memory.max", "7\n")], Some(7)),
            ("neighbour", "0::/a/b\n", &[("a/c/memory.max", "7\n"), ("b/memory.max", "7")], None),
            ("colon", "0::/a:b\n", &[("a:b/memory.max", "7\n")], Some(7)),
            ("outside", "0::/../a\n", &[("a/memory.max", "7\n"), ("memory.max", "9")], Some(9)),
            ("back", "0::/a/../b\n", &[("b/memory.max", "7"), ("memory.max", "9")], Some(9)),
            ("no number", "0::/a\n", &[("a/memory.max", "-1\n"), ("memory.max", "much")], None),
            (
                "v1",
                "12:cpu,cpuacct:/a\n4:hugetlb,memory:/b/c\n",
                &[
                    ("memory/b/c/memory.limit_in_bytes", V1_UNLIMITED),
                    ("memory/b/memory.limit_in_bytes", "7\n"),
                    ("memory/a/memory.limit_in_bytes", "1\n"),
                ],
                Some(7),
            ),
            (
                "v1 without a limit",
                "4:memory:/a\n1:name=memory:/b\n",
                &[
                    ("memory/a/memory.limit_in_bytes", V1_UNLIMITED),
                    ("memory/b/memory.limit_in_bytes", "7\n"),
                ],
                None,
            ),
            (
                "v1 in a container that does not see its path",
                "4:memory:/docker/0123\n",
                &[("memory/memory.limit_in_bytes", "7\n")],
                Some(7),
            ),
            (
                "both, memory in v1",
                "4:memory:/a\n0::/b\n",
                &[("memory/a/memory.limit_in_bytes", "7\n"), ("b/cgroup.procs", "1\n")],
                Some(7),
            ),
        ];
        for (name, groups, files, want) in cases {
            let read = |path: &Path| {
                let found = files.iter().find(|(file, _)| path == Path::new(CGROUP_V2).join(file));
                found.map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(group_limit_bytes(groups, read), want, "{name}");
        }
        let malformed = "0:/a\n0\n::\n:memory\nmemory\n\n1:cpu:memory\n";
        let read = |path: &Path| panic!("{} was read", path.display());
        assert_eq!(group_limit_bytes(malformed, read), None);
    }
}
