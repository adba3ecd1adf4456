//! Hand-made histories: one per anomaly, found; and correct ones, which pass.

use super::super::history::{Op, Outcome, Txn};
use super::*;

mod parallel;

const X: u64 = 1;
const Y: u64 = 2;
const Z: u64 = 3;

fn a(key: u64, value: u64) -> Op {
    Op::Append(key, value)
}

fn r(key: u64, list: &[u64]) -> Op {
    Op::Read(key, list.to_vec())
}

/// All overlap in time.
fn ok(ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        site: 0,
        invoke: 0,
        complete: 100,
        outcome: Outcome::Ok,
        ops: ops.into(),
    }
}

fn at(invoke: u64, complete: u64, ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        invoke,
        complete,
        ..ok(ops)
    }
}

fn fail(ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        outcome: Outcome::Fail,
        ..ok(ops)
    }
}

fn unknown(ops: impl Into<Vec<Op>>) -> Txn {
    Txn {
        outcome: Outcome::Unknown,
        ..ok(ops)
    }
}

/// Those of sites have tests of their own; all transactions here are of one.
fn classes(history: &[Txn]) -> Vec<Class> {
    let anomalies = check(history).anomalies;
    let mut classes: Vec<Class> = anomalies.iter().map(|a| a.class).collect();
    classes.retain(|c| !matches!(c, Class::SiteOrder | Class::SiteFork));
    classes.dedup();
    classes
}

#[test]
fn a_serial_history_passes() {
    let history = [
        at(0, 1, [a(X, 1), a(Y, 2)]),
        at(2, 3, [r(X, &[1]), a(X, 3), r(X, &[1, 3])]),
        at(4, 5, [r(X, &[1, 3]), r(Y, &[2]), r(Z, &[])]),
        at(6, 7, [a(Z, 4), a(Z, 5)]),
        at(8, 9, [r(Z, &[4, 5]), a(X, 6)]),
    ];
    assert_eq!(classes(&history), []);
}

#[test]
fn a_concurrent_serializable_history_passes() {
    // T1 before T0 in the order, though they overlap.
    let history = [
        ok([r(X, &[2]), a(X, 1)]),
        ok([r(X, &[]), a(X, 2), r(Y, &[])]),
        ok([r(X, &[2, 1]), a(Y, 3)]),
    ];
    assert_eq!(classes(&history), []);
}

#[test]
fn dirty_write() {
    let history = [
        ok([a(X, 1), a(Y, 2)]),
        ok([a(X, 3), a(Y, 4)]),
        ok([r(X, &[1, 3]), r(Y, &[4, 2])]),
    ];
    assert!(check(&history).has(Class::G0));
}

#[test]
fn aborted_read() {
    let history = [fail([a(X, 1)]), ok([r(X, &[1])])];
    assert!(classes(&history).contains(&Class::G1a));
}

#[test]
fn intermediate_read() {
    let history = [
        ok([a(X, 1), a(X, 2)]),
        ok([r(X, &[1])]),
        ok([r(X, &[1, 2])]),
    ];
    assert!(classes(&history).contains(&Class::G1b));
}

#[test]
fn circular_information_flow() {
    let history = [ok([a(X, 1), r(Y, &[2])]), ok([a(Y, 2), r(X, &[1])])];
    assert_eq!(classes(&history), [Class::G1c]);
}

#[test]
fn lost_update() {
    let history = [
        ok([r(X, &[]), a(X, 1)]),
        ok([r(X, &[]), a(X, 2)]),
        ok([r(X, &[1, 2])]),
    ];
    let report = check(&history);
    assert!(report.has(Class::LostUpdate), "{report:?}");
    assert!(report.violations(Level::ReadCommitted).is_empty());
    assert!(!report.violations(Level::Snapshot).is_empty());
}

#[test]
fn an_append_that_vanished_is_a_lost_update() {
    // Both acknowledged, but no read shows 1: it can only come after 2.
    let history = [
        at(0, 10, [r(X, &[]), a(X, 1)]),
        at(0, 10, [r(X, &[]), a(X, 2)]),
        at(20, 30, [r(X, &[2])]),
    ];
    let report = check(&history);
    assert!(!report.violations(Level::Snapshot).is_empty(), "{report:?}");
}

#[test]
fn read_skew() {
    let history = [
        ok([r(X, &[]), r(Y, &[2])]),
        ok([a(X, 1), a(Y, 2)]),
        ok([r(X, &[1])]),
    ];
    assert_eq!(classes(&history), [Class::GSingle]);
    assert!(check(&history).violations(Level::ReadCommitted).is_empty());
    assert_eq!(check(&history).violations(Level::Snapshot).len(), 1);
}

#[test]
fn long_fork() {
    let history = [
        ok([a(X, 1)]),
        ok([a(Y, 2)]),
        ok([r(X, &[1]), r(Y, &[])]),
        ok([r(X, &[]), r(Y, &[2])]),
    ];
    let report = check(&history);
    assert!(report.has(Class::GNonadjacent), "{report:?}");
    assert!(!report.has(Class::GSingle));
    assert!(!report.violations(Level::Snapshot).is_empty());
}

#[test]
fn write_skew() {
    let history = [
        ok([r(X, &[]), a(Y, 1)]),
        ok([r(Y, &[]), a(X, 2)]),
        ok([r(X, &[2]), r(Y, &[1])]),
    ];
    assert_eq!(classes(&history), [Class::G2]);
    let report = check(&history);
    assert!(report.violations(Level::Snapshot).is_empty());
    assert_eq!(report.violations(Level::Serializable).len(), 1);
}

#[test]
fn read_only_anomaly() {
    // Fekete, O'Neil, O'Neil 2004: snapshot isolation alone lets it through.
    let history = [
        ok([r(X, &[]), r(Y, &[]), a(X, 1)]),
        ok([a(Y, 2)]),
        ok([r(X, &[]), r(Y, &[2])]),
        ok([r(X, &[1]), r(Y, &[2])]),
    ];
    let report = check(&history);
    assert!(report.has(Class::G2), "{report:?}");
    assert!(report.violations(Level::Snapshot).is_empty());
    assert!(!report.violations(Level::Serializable).is_empty());
}

#[test]
fn a_stale_read_breaks_only_real_time() {
    let history = [
        at(0, 1, [a(X, 1)]),
        at(2, 3, [r(X, &[])]),
        at(4, 5, [r(X, &[1])]),
    ];
    assert_eq!(classes(&history), [Class::RealTime]);
    let report = check(&history);
    assert!(report.violations(Level::Serializable).is_empty());
    assert_eq!(report.violations(Level::StrictSerializable).len(), 1);
}

#[test]
fn overlapping_transactions_have_no_real_time_order() {
    let history = [
        at(0, 5, [a(X, 1)]),
        at(2, 3, [r(X, &[])]),
        at(4, 5, [r(X, &[1])]),
    ];
    assert_eq!(classes(&history), []);
}

#[test]
fn real_time_is_transitive_over_pruned_edges() {
    let mut history = vec![at(0, 1, [a(X, 1)])];
    history.extend((1..50).map(|i| at(2 * i, 2 * i + 1, [a(Y, 100 + i)])));
    history.push(at(200, 201, [r(X, &[])]));
    history.push(at(300, 301, [r(X, &[1])]));
    assert_eq!(classes(&history), [Class::RealTime]);
}

#[test]
fn lists_that_disagree() {
    let history = [
        ok([a(X, 1)]),
        ok([a(X, 2)]),
        ok([r(X, &[1, 2])]),
        ok([r(X, &[2])]),
    ];
    assert!(classes(&history).contains(&Class::Incompatible));
}

#[test]
fn values_from_nowhere_and_twice() {
    assert!(classes(&[ok([r(X, &[7])])]).contains(&Class::Garbage));
    assert!(classes(&[ok([a(X, 1)]), ok([r(X, &[1, 1])])]).contains(&Class::Duplicate));
}

#[test]
fn own_appends_must_be_seen() {
    assert!(classes(&[ok([a(X, 1), r(X, &[])])]).contains(&Class::Internal));
    assert_eq!(
        classes(&[ok([a(X, 1), r(X, &[1]), a(X, 2), r(X, &[1, 2])])]),
        []
    );
}

#[test]
fn unknown_outcomes_are_neither_required_nor_forbidden() {
    let history = [unknown([a(X, 1)]), ok([r(X, &[])])];
    assert_eq!(classes(&history), []);
    let history = [unknown([a(X, 1)]), ok([r(X, &[1])])];
    assert_eq!(classes(&history), []);
    // Seen, so it happened, so what it read counts.
    let history = [
        unknown([r(Y, &[]), a(X, 1)]),
        ok([r(X, &[]), a(Y, 2)]),
        ok([r(X, &[1]), r(Y, &[2])]),
    ];
    assert_eq!(classes(&history), [Class::G2]);
}

#[test]
fn a_failed_transaction_s_reads_do_not_count() {
    let history = [
        fail([r(X, &[]), r(Y, &[2]), a(Z, 9)]),
        ok([a(X, 1), a(Y, 2)]),
        ok([r(X, &[1])]),
    ];
    assert_eq!(classes(&history), []);
}

#[test]
fn random_serial_histories_pass_and_a_dropped_append_is_found() {
    use super::super::generate::{Generator, Plan, Shape};
    use std::collections::BTreeMap;
    let mut generator = Generator::new(5, Shape::default());
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut history = Vec::new();
    for i in 0..2000u64 {
        let mut ops = Vec::new();
        for plan in generator.next_txn() {
            match plan {
                Plan::Append(key, value) => {
                    lists.entry(key).or_default().push(value);
                    ops.push(a(key, value));
                }
                Plan::Read(key) => ops.push(r(key, lists.get(&key).map_or(&[], |l| l))),
                Plan::ReadRange(low, high) => {
                    ops.extend((low..=high).map(|key| r(key, lists.get(&key).map_or(&[], |l| l))))
                }
            }
        }
        history.push(at(2 * i, 2 * i + 1, ops));
    }
    assert_eq!(classes(&history), []);
    // Damage one read in the middle: its last element goes missing.
    let damaged = history[1000..]
        .iter_mut()
        .flat_map(|t| &mut t.ops)
        .find_map(|op| match op {
            Op::Read(_, list) if list.len() > 1 => list.pop(),
            _ => None,
        });
    assert!(damaged.is_some());
    let report = check(&history);
    assert!(!report.violations(Level::StrictSerializable).is_empty());
}
