//! What is aimed at, how far the figures are from it, and what they say stands in between.

use super::figures::{Figures, grouped, median, medians};
use super::profile::Profile;
use std::fmt::Write;

/// A line of issue 2: transactions per second and core.
pub struct Aim {
    what: &'static str,
    pub load: &'static str,
    core: f64,
    /// The same without looking ahead.
    behind: &'static str,
    /// The same load without the library.
    bare: &'static str,
}

pub const AIMS: &[Aim] = &[
    Aim {
        what: "YCSB",
        load: "ycsb uniform, pipelined, ahead",
        core: 150_000.0,
        behind: "ycsb uniform, pipelined",
        bare: "bare ycsb uniform, ahead",
    },
    Aim {
        what: "TPC-C",
        load: "tpcc, pipelined, ahead",
        core: 40_000.0,
        behind: "tpcc, pipelined",
        bare: "bare tpcc, ahead",
    },
];

/// Parts that the page names; the rest are one line.
const PARTS: usize = 6;

pub fn judge(text: &mut String, aim: &Aim, figures: &Figures, profile: Option<&Profile>) {
    let allowed = 1e6 / aim.core;
    let _ = writeln!(
        text,
        "\n### {}: {} per second and core, {allowed:.1} us\n",
        aim.what,
        grouped(aim.core)
    );
    let alone = figures.of(aim.load, 1);
    if alone.is_empty() {
        text.push_str("Not measured.\n");
        return;
    }
    for threads in [1, 2] {
        let runs = figures.of(aim.load, threads);
        if runs.is_empty() {
            continue;
        }
        let core = median(runs, |r| r.core);
        let reached = match core >= aim.core {
            true => "**reached**",
            false => "not reached",
        };
        let _ = writeln!(
            text,
            "- {threads} thread{}: {} per core, {:.0} % of the aim: {reached}.",
            if threads == 1 { "" } else { "s" },
            grouped(core),
            core * 100.0 / aim.core
        );
    }
    let (us, own) = (median(alone, |r| r.us), median(alone, |r| r.own));
    let index = figures.bare(aim.bare);
    let with_log = figures.bare(&format!("{}, log", aim.bare));
    if let (Some(index), Some(with_log)) = (index, with_log) {
        let _ = writeln!(
            text,
            "- The same work over the index and the rows alone takes {index:.1} us, {:.0} % of what the aim allows; with the log {with_log:.1} us, \
             which would be {} per core. The library takes {:.1} times as long: {:.1} us for snapshots, write sets, validation, the order, \
             publishing and reclaiming.",
            index * 100.0 / allowed,
            grouped(1e6 / with_log),
            us / with_log,
            us - with_log
        );
    }
    let behind = figures.of(aim.behind, 1);
    if !behind.is_empty() {
        let _ = writeln!(
            text,
            "- Without looking ahead the thread takes {:.1} us, {:+.1}: that is waiting for memory, which looking ahead overlaps.",
            median(behind, |r| r.own),
            median(behind, |r| r.own) - own
        );
    }
    let two = figures.of(aim.load, 2);
    if !two.is_empty() {
        let both = median(two, |r| r.own);
        let _ = writeln!(
            text,
            "- With a second thread each takes {both:.1} us instead of {own:.1} ({:+.0} %) for the same transactions; {:.2} % of the runs lose \
             and run again.",
            (both / own - 1.0) * 100.0,
            median(two, |r| r.aborts)
        );
    }
    parts(text, us, own, allowed, alone, profile);
}

/// A transaction's time in parts, the largest first, and how much of it the aim does not allow.
fn parts(
    text: &mut String,
    us: f64,
    own: f64,
    allowed: f64,
    alone: &[super::figures::Run],
    profile: Option<&Profile>,
) {
    let Some(profile) = profile else {
        return;
    };
    let groups = profile.groups().into_iter();
    let mut all: Vec<(String, f64)> = groups
        .map(|(name, share)| (name.to_owned(), own * share / 100.0))
        .collect();
    let beside = medians(alone, |r| &r.beside).into_iter();
    all.extend(beside.map(|(name, us)| (format!("the thread {name}"), us)));
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = |p: &(String, f64)| format!("{} {:.1} us", p.0, p.1);
    let first: Vec<String> = all.iter().take(PARTS).map(shown).collect();
    let rest: f64 = all.iter().skip(PARTS).map(|p| p.1).sum();
    let _ = writeln!(
        text,
        "- Of {us:.1} us with one thread: {}; the rest {rest:.1} us.",
        first.join("; ")
    );
    match us - allowed {
        over if over > 0.0 => {
            let mut sum = 0.0;
            let enough = all.iter().take_while(|p| {
                let before = sum;
                sum += p.1 / 2.0;
                before < over
            });
            let names: Vec<&str> = enough.map(|p| p.0.as_str()).collect();
            let _ = writeln!(
                text,
                "- **In the way: {over:.1} us.** The largest parts that would do if each were halved: {}.",
                names.join(", ")
            );
        }
        under => {
            let _ = writeln!(
                text,
                "- Nothing stands in the way of one thread: {:.1} us are to spare.",
                -under
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::embedded::{figures, profile};

    #[test]
    fn what_stands_in_the_way_follows_from_the_figures() {
        let mut text = String::new();
        let (f, p) = (figures::tests::sample(), profile::tests::sample());
        judge(&mut text, &AIMS[0], &f, Some(&p));
        for part in [
            "- 1 thread: 120,000 per core, 80 % of the aim: not reached.",
            "- 2 threads: 100,000 per core, 67 % of the aim: not reached.",
            "takes 3.2 us, 48 % of what the aim allows; with the log 4.0 us, which would be 250,000 per core. The library takes 2.1 times as long: 4.3 us",
            "- With a second thread each takes 8.0 us instead of 7.0 (+14 %)",
            "index and rows (`store`) 2.8 us; transactions (`txn`) 1.8 us; the kernel 1.4 us; the thread flusher 1.0 us",
            "- **In the way: 1.7 us.** The largest parts that would do if each were halved: index and rows (`store`), transactions (`txn`).",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let mut text = String::new();
        judge(&mut text, &AIMS[1], &f, None);
        assert!(text.ends_with("Not measured.\n"), "{text}");
    }
}
