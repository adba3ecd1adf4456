//! Which anomalies a history shows, and which of them an isolation level forbids.
//!
//! Names follow Adya ("Weak Consistency", 1999) and Elle. Those of sites are ours. A cycle is put in the strongest class
//! that fits: a component of the graph is searched for a G0 first, then a G1c, and so on; a
//! component may show several classes.

use super::graph::{Cycle, Graph, Kind};
use super::history::Txn;
use super::infer::infer;
use std::collections::BTreeSet;
use std::fmt;

/// Kinds of anomaly, from the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A list holds a value that nobody appended.
    Garbage,
    /// A list holds a value twice.
    Duplicate,
    /// A transaction does not see its own appends.
    Internal,
    /// Two reads of a list of which neither is a prefix of the other.
    Incompatible,
    /// Dirty write: a cycle of ww.
    G0,
    /// Aborted read.
    G1a,
    /// Intermediate read.
    G1b,
    /// Circular information flow: a cycle of ww and wr.
    G1c,
    /// Two transactions read one version of one list and both appended to it.
    LostUpdate,
    /// Read skew: a cycle with exactly one rw.
    GSingle,
    /// A cycle with several rw of which no two are neighbours (long fork).
    GNonadjacent,
    /// A cycle with neighbouring rw: write skew, and the read-only anomaly.
    G2,
    /// A cycle with at most one rw that needs the order of one site: a transaction does not see what was answered at its site
    /// before, or sees an effect there without its cause.
    SiteOrder,
    /// A long fork among transactions of one site, whose snapshots are therefore no prefixes of one order.
    SiteFork,
    /// A cycle that needs an edge of real time: serializable perhaps, but not in this order.
    RealTime,
}

/// One finding, with the transactions (numbers in the history) that show it.
#[derive(Clone, Debug)]
pub struct Anomaly {
    pub class: Class,
    pub txns: Vec<usize>,
    pub text: String,
}

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    ReadCommitted,
    /// Parallel snapshot isolation (Sovran et al. 2011; PSP §3.1): each site commits in an order of its own that keeps causes before
    /// effects. A transaction sees a prefix of the order of its site. Of two that change the same list, one has seen the other.
    /// Long forks between sites are allowed.
    ParallelSnapshot,
    /// Snapshot isolation, as PostgreSQL's REPEATABLE READ.
    Snapshot,
    Serializable,
    StrictSerializable,
}

impl Level {
    /// Whether a history that keeps this level may not show `class`.
    pub fn forbids(self, class: Class) -> bool {
        match class {
            Class::Garbage | Class::Duplicate | Class::Internal | Class::Incompatible => true,
            Class::G0 | Class::G1a | Class::G1b | Class::G1c => true,
            Class::LostUpdate | Class::GSingle => self != Level::ReadCommitted,
            Class::GNonadjacent => !matches!(self, Level::ReadCommitted | Level::ParallelSnapshot),
            Class::G2 => matches!(self, Level::Serializable | Level::StrictSerializable),
            // Within one site these are more than the other levels promise, or what they call by another name.
            Class::SiteOrder | Class::SiteFork => self == Level::ParallelSnapshot,
            Class::RealTime => self == Level::StrictSerializable,
        }
    }
}

/// Everything that was found, and how much was looked at.
#[derive(Clone, Debug)]
pub struct Report {
    pub transactions: usize,
    pub anomalies: Vec<Anomaly>,
}

impl Report {
    /// The anomalies that `level` forbids.
    pub fn violations(&self, level: Level) -> Vec<&Anomaly> {
        self.anomalies
            .iter()
            .filter(|a| level.forbids(a.class))
            .collect()
    }

    pub fn has(&self, class: Class) -> bool {
        self.anomalies.iter().any(|a| a.class == class)
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, self.text)
    }
}

/// Searches a whole history.
pub fn check(history: &[Txn]) -> Report {
    let inferred = infer(history);
    let mut anomalies = inferred.anomalies;
    cycles(&inferred.graph, history, &mut anomalies);
    site_cycles(&inferred.graph, history, &mut anomalies);
    anomalies.sort_by_key(|a| a.class);
    Report {
        transactions: history.len(),
        anomalies,
    }
}

fn cycles(graph: &Graph, history: &[Txn], anomalies: &mut Vec<Anomaly>) {
    use Kind::{Rt, Rw, Wr, Ww};
    let mut add = |class, found: Vec<Cycle>| {
        let empty = found.is_empty();
        for cycle in found {
            let class = if class == Class::GSingle && is_lost_update(&cycle) {
                Class::LostUpdate
            } else {
                class
            };
            anomalies.push(Anomaly {
                class,
                txns: cycle.iter().map(|edge| edge.0).collect(),
                text: describe(&cycle, history),
            });
        }
        !empty
    };
    add(Class::G0, graph.cycles(Ww, &[Ww], false));
    add(Class::G1c, graph.cycles(Wr, &[Ww, Wr], false));
    add(Class::GSingle, graph.cycles(Rw, &[Ww, Wr], false));
    add(
        Class::GNonadjacent,
        graph
            .cycles(Rw, &[Ww, Wr], true)
            .into_iter()
            .filter(several)
            .collect(),
    );
    add(
        Class::G2,
        graph
            .cycles(Rw, &[Ww, Wr, Rw], false)
            .into_iter()
            .filter(neighbours)
            .collect(),
    );
    // Only cycles that need real time: what is cyclic without it has been reported.
    let within = graph.components(&[Ww, Wr, Rw]);
    let real = graph.cycles(Rt, &[Ww, Wr, Rw, Rt], false);
    add(
        Class::RealTime,
        real.into_iter()
            .filter(|c| {
                let first = within[c[0].0];
                first.is_none() || c.iter().any(|e| within[e.0] != first)
            })
            .collect(),
    );
}

/// Cycles that parallel snapshot isolation forbids and no weaker level does, beside G-single.
///
/// At every site causes are before effects: ww, wr, and what was answered at one site before the other began there. An rw says how far a
/// snapshot reaches in the order of its own site only. So for each site the rw of its own transactions count, and two that are neighbours do
/// not. Cerone, Bernardi and Gotsman (2015) have the same without sites: PSI forbids cycles with one rw.
fn site_cycles(graph: &Graph, history: &[Txn], anomalies: &mut Vec<Anomaly>) {
    use Kind::{Rw, Site, Wr, Ww};
    let causes = [Ww, Wr, Site];
    let by_order = |c: &Cycle| c.iter().any(|e| e.1 == Site);
    let mut add = |class, found: Vec<Cycle>| {
        anomalies.extend(found.into_iter().map(|cycle| Anomaly {
            class,
            txns: cycle.iter().map(|edge| edge.0).collect(),
            text: describe(&cycle, history),
        }));
    };
    let mut found = graph.cycles(Site, &causes, false);
    found.extend(graph.cycles(Rw, &causes, false));
    found.retain(by_order);
    add(Class::SiteOrder, found);
    let sites: BTreeSet<usize> = history.iter().map(|t| t.site).collect();
    for site in sites {
        let here = graph.keeping(|from, e| e.kind != Rw || history[from].site == site);
        let mut forks = here.cycles(Rw, &causes, true);
        forks.retain(several);
        add(Class::SiteFork, forks);
    }
}

/// Two or more rw, none next to another (a single one is G-single).
fn several(cycle: &Cycle) -> bool {
    cycle.iter().filter(|e| e.1 == Kind::Rw).count() > 1
}

/// Some two rw next to each other, ends included.
fn neighbours(cycle: &Cycle) -> bool {
    (0..cycle.len()).any(|i| cycle[i].1 == Kind::Rw && cycle[(i + 1) % cycle.len()].1 == Kind::Rw)
}

/// `a -rw-> b -ww-> a` on one list: both read the same version, both appended.
fn is_lost_update(cycle: &Cycle) -> bool {
    matches!(cycle[..], [(_, Kind::Rw, k1), (_, Kind::Ww, k2)] if k1 == k2)
}

fn describe(cycle: &Cycle, history: &[Txn]) -> String {
    let mut text = String::new();
    for &(txn, kind, key) in cycle {
        let arrow = match kind {
            Kind::Ww => "ww",
            Kind::Wr => "wr",
            Kind::Rw => "rw",
            Kind::Rt => "rt",
            Kind::Site => "site",
        };
        text.push_str(&format!("T{txn} -{arrow}"));
        if !matches!(kind, Kind::Rt | Kind::Site) {
            text.push_str(&format!("({key})"));
        }
        text.push_str("-> ");
    }
    text.push_str(&format!("T{}", cycle[0].0));
    for &(txn, ..) in cycle {
        let t = &history[txn];
        text.push_str(&format!(
            "\n    T{txn} at {} {:?} [{}, {}] {:?}",
            t.site, t.outcome, t.invoke, t.complete, t.ops
        ));
    }
    text
}

#[cfg(test)]
mod tests;
