//! What the kernel says about running processes: descendants, CPU time, resident memory. Linux only (`/proc`).
//!
//! CPU time of a server is that of its first process, of its living descendants, and of the children it has already
//! waited for (PostgreSQL's backends come and go). Ticks are 1/100 s.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Ticks in a second: `getconf CLK_TCK`, 100 on every Linux that we know.
const TICKS: f64 = 100.0;

/// What `/proc/PID/stat` gives.
struct Stat {
    parent: u32,
    /// Own user and system time, in ticks.
    own: u64,
    /// The same of children that ended and were waited for.
    reaped: u64,
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &str) -> Option<Stat> {
    // The name stands in parentheses and may hold spaces; fields are counted after the last one.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(Stat {
        parent: number(1)? as u32,
        own: number(11)? + number(12)?,
        reaped: number(13)? + number(14)?,
        started: number(19)?,
    })
}

/// CPU time that the server whose first process is `pid` has used so far, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    let first = stat(pid).map_or(0, |s| s.own + s.reaped);
    let living: u64 = descendants(pid)
        .into_iter()
        .filter_map(stat)
        .map(|s| s.own + s.reaped)
        .sum();
    (first + living) as f64 / TICKS
}

/// CPU time of this process without its children, in seconds.
pub fn cpu_seconds_here() -> f64 {
    stat(std::process::id()).map_or(0.0, |s| s.own as f64 / TICKS)
}

/// CPU time of the children that this process has waited for, in seconds.
pub fn reaped_seconds() -> f64 {
    stat(std::process::id()).map_or(0.0, |s| s.reaped as f64 / TICKS)
}

/// Seconds that all cores together have been busy, and seconds in all, since the machine started.
pub fn machine_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let fields: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|f| f.parse().ok())
        .collect();
    let total: f64 = fields.iter().sum();
    let idle: f64 = fields.iter().skip(3).take(2).sum();
    ((total - idle) / TICKS, total / TICKS)
}

/// Resident memory of one process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// When `pid` started, in ticks since boot: with the pid, the identity of a process.
pub fn started(pid: u32) -> Option<u64> {
    stat(pid).map(|s| s.started)
}

/// All living descendants of `pid`, without `pid` itself.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let child = entry.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some((child, stat)) = child.and_then(|c| Some((c, stat(c)?))) {
            children.entry(stat.parent).or_default().push(child);
        }
    }
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        found.extend(children.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    found.split_off(1)
}

/// Processes whose working directory is this one or lies below it: servers that stay after the script that started them.
pub fn working_in(directory: &Path) -> Vec<u32> {
    let Ok(directory) = directory.canonicalize() else {
        return Vec::new();
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let works = |e: &std::fs::DirEntry| {
        std::fs::read_link(e.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&directory))
    };
    all.filter(works)
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// Ends a process and its descendants at once.
pub fn kill_tree(pid: u32) {
    let mut all = descendants(pid);
    all.push(pid);
    let mut kill = Command::new("kill");
    kill.arg("-KILL").args(all.iter().map(u32::to_string));
    // One that ended meanwhile is as good as killed.
    let _ = kill.stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat =
            parse("7 (a ) b) S 3 7 7 0 -1 4194560 1 2 3 4 50 6 7 8 20 0 1 0 99 1 1").unwrap();
        assert_eq!((stat.parent, stat.own, stat.reaped), (3, 56, 15));
        assert_eq!(stat.started, 99);
    }

    #[test]
    fn time_and_memory_of_this_process_are_not_nothing() {
        let me = std::process::id();
        assert!(resident(me).unwrap() > 100_000);
        let (busy, total) = machine_seconds();
        assert!(0.0 < busy && busy < total);
        assert!(cpu_seconds(me) <= busy);
    }

    #[test]
    fn a_child_is_a_descendant_until_it_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        kill_tree(child.id());
        child.wait().unwrap();
        assert!(!descendants(std::process::id()).contains(&child.id()));
    }
}
