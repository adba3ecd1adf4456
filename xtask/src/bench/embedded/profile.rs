//! Where a load spends its time: samples of the threads that run transactions, by function and by what the function belongs to.
//!
//! Left out on purpose: what was inlined into what (that takes a stack for each sample, and stacks change what is measured).

use crate::{Result, command};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Functions that the page names.
const FUNCTIONS: usize = 20;

/// What functions belong to: the first of these words in a function's name decides.
const GROUPS: [(&str, &[&str]); 9] = [
    (
        "index and rows (`store`)",
        &["store::", "crossbeam_epoch::"],
    ),
    ("transactions (`txn`)", &["txn::"]),
    (
        "order, log, publishing (`commit`, `node`, `wal`)",
        &["commit::", "node::", "wal::", "env::"],
    ),
    ("keys, rows, log records (`base`)", &["base::"]),
    ("the workload", &["workload::", "bench::"]),
    ("the library's door (`embedded`)", &["embedded::"]),
    ("memory taken and given back", &["mi_", "_mi", "mimalloc"]),
    (
        "bytes copied and compared (libc)",
        &["memcpy", "memmove", "memcmp", "memset", "bcmp"],
    ),
    (KERNEL, &[]),
];

const KERNEL: &str = "the kernel";
const OTHER: &str = "other";

pub struct Profile {
    /// Per cent of the threads' samples, and the function; the kernel's begin with `[k] `.
    functions: Vec<(f64, String)>,
}

/// Runs one load of `library_bench` under `perf`.
pub fn of(binary: &Path, directory: &Path, seconds: u32, load: &str) -> Result<Profile> {
    let data = directory.join(format!("canon-perf-{}.data", std::process::id()));
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "-e", "cpu-clock", "-F", "1999", "-o"]);
    record.arg(&data).arg("--").arg(binary).arg("--tabs");
    record.arg(directory).args([&seconds.to_string(), load]);
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--no-children", "-g", "none"]);
    report.args(["--comms", "worker", "--percentage", "relative"]);
    report.args(["--sort", "symbol", "-i"]).arg(&data);
    let text = command::output(&mut record).and_then(|_| command::output(&mut report));
    let _ = std::fs::remove_file(&data);
    let profile = Profile::parse(&text?);
    match profile.functions.is_empty() {
        false => Ok(profile),
        true => Err("perf has no samples of the threads".into()),
    }
}

impl Profile {
    fn parse(text: &str) -> Profile {
        let function = |line: &str| {
            let (share, rest) = line.trim().split_once('%')?;
            let share = share.parse().ok()?;
            let (mark, name) = rest.trim_start().split_once(' ')?;
            // Columns that this machine has nothing to say in stand behind the name.
            let name = name.trim_end_matches([' ', '-']).trim();
            Some(match mark {
                "[k]" => (share, format!("[k] {name}")),
                _ => (share, name.to_owned()),
            })
        };
        let lines = text.lines().filter(|l| !l.trim_start().starts_with('#'));
        Profile {
            functions: lines.filter_map(function).collect(),
        }
    }

    /// Per cent by what functions belong to, the largest first.
    pub fn groups(&self) -> Vec<(&'static str, f64)> {
        let mut all: Vec<(&'static str, f64)> = Vec::new();
        for (share, name) in &self.functions {
            let group = group_of(name);
            match all.iter_mut().find(|g| g.0 == group) {
                Some(g) => g.1 += share,
                None => all.push((group, *share)),
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    /// `own`: what the thread takes for a transaction, in microseconds.
    pub fn table(&self, text: &mut String, own: f64) {
        text.push_str("| what | of the thread | us |\n|---|---|---|\n");
        for (group, share) in self.groups() {
            let _ = writeln!(
                text,
                "| {group} | {share:.1} % | {:.2} |",
                own * share / 100.0
            );
        }
        text.push_str("\n| function | of the thread |\n|---|---|\n");
        for (share, name) in self.functions.iter().take(FUNCTIONS) {
            let name = name.replace('|', "\\|");
            let _ = writeln!(text, "| `{name}` | {share:.1} % |");
        }
    }
}

fn group_of(name: &str) -> &'static str {
    if name.starts_with("[k] ") {
        return KERNEL;
    }
    let mut first = (usize::MAX, OTHER);
    for (group, words) in GROUPS {
        let places = words.iter().filter_map(|w| name.find(w));
        // Of two that begin at one place the group that is named first: a part of a crate before the crate.
        if let Some(place) = places.min().filter(|p| *p < first.0) {
            first = (place, group);
        }
    }
    first.1
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const TEXT: &str = "# Samples: 10K\n#\n    40.00%  [.] <store::view::View>::get      -      -\n    25.00%  [.] <alloc::collections::btree::map::BTreeMap<alloc::boxed::Box<[u8]>, txn::writes::Pending>>::insert\n    20.00%  [k] clear_page_erms\n    10.00%  [.] bench::run::measure\n     5.00%  [.] __memcpy_avx_unaligned_erms\n";

    pub fn sample() -> Profile {
        Profile::parse(TEXT)
    }

    #[test]
    fn samples_are_added_up_by_what_they_belong_to() {
        let groups = sample().groups();
        assert_eq!(
            groups,
            [
                ("index and rows (`store`)", 40.0),
                ("transactions (`txn`)", 25.0),
                ("the kernel", 20.0),
                ("the workload", 10.0),
                ("bytes copied and compared (libc)", 5.0),
            ]
        );
        assert_eq!(
            group_of("embedded::table::Table::get"),
            "the library's door (`embedded`)"
        );
        assert_eq!(group_of("_start"), OTHER);
    }
}
