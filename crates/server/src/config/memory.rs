//! How much memory a server takes where nothing is said: of the machine's, or of what its cgroup allows.
//!
//! | setting | nothing said |
//! |---|---|
//! | `max_memory`, of rows | three quarters |
//! | `memory.total`, of all else | half of what is left beside the rows |

use super::said::Said;
use base::Result;
use std::path::Path;

/// The least `memory.total`: a server with less could not serve its connections.
const LEAST_TOTAL: u64 = 64 << 20;

/// `max_memory`, in bytes.
pub fn of_rows(said: &Said<String>) -> Result<u64> {
    match said.if_any() {
        None => Ok(of_machine().map_or(u64::MAX, |m| m / 4 * 3)),
        Some(_) => said.size(),
    }
}

/// `memory.total`, in bytes; 22023 for less than a server needs.
pub fn of_the_rest(said: &Said<String>, max_memory: u64) -> Result<u64> {
    let left = || of_machine().map_or(u64::MAX, |m| m.saturating_sub(max_memory));
    match said.if_any() {
        None => Ok((left() / 2).max(LEAST_TOTAL)),
        Some(_) if said.size()? < LEAST_TOTAL => Err(said.bad("at least 64MB")),
        Some(_) => said.size(),
    }
}

/// What this process may take at most. Bytes; none: the system does not say.
fn of_machine() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map(|kb| kb << 10);
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(cgroup_limits(&own)).min()
}

/// The limits of the cgroups that the process is in and of those around them: version 2 (`0::/a/b`), and version 1's `memory`.
fn cgroup_limits(own: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for part in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = std::fs::read_to_string(Path::new(root).join(part).join(file));
            limits.extend(text.ok().and_then(|t| t.trim().parse::<u64>().ok()));
        }
    }
    limits
}
