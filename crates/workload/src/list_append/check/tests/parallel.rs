//! Histories of several sites against parallel snapshot isolation: what it forbids is found, what it allows is not called a violation.

use super::super::super::history::Txn;
use super::*;

fn of(site: usize, t: Txn) -> Txn {
    Txn { site, ..t }
}

/// What breaks parallel snapshot isolation.
fn broken(history: &[Txn]) -> Vec<Class> {
    let report = check(history);
    let violations = report.violations(Level::ParallelSnapshot);
    let mut classes: Vec<Class> = violations.iter().map(|a| a.class).collect();
    classes.dedup();
    classes
}

fn is_serializable(history: &[Txn]) -> bool {
    check(history).violations(Level::Serializable).is_empty()
}

#[test]
fn what_sites_may_show_passes() {
    // Site 1 sees its own append first, site 2 the other one; later both see both.
    let history = [
        of(1, at(0, 1, [a(X, 1)])),
        of(2, at(0, 1, [a(Y, 2)])),
        of(1, at(2, 3, [r(X, &[1]), r(Y, &[])])),
        of(2, at(2, 3, [r(X, &[]), r(Y, &[2])])),
        of(1, at(4, 5, [r(X, &[1]), r(Y, &[2])])),
        of(2, at(4, 5, [r(X, &[1]), r(Y, &[2]), a(X, 3)])),
        of(1, at(6, 7, [r(X, &[1, 3])])),
    ];
    assert_eq!(broken(&history), []);
    let report = check(&history);
    assert!(!report.violations(Level::Snapshot).is_empty());
    assert!(!is_serializable(&history), "a long fork");
}

#[test]
fn write_skew_between_sites_is_allowed_and_not_serializable() {
    let history = [
        of(1, ok([r(X, &[]), a(Y, 1)])),
        of(2, ok([r(Y, &[]), a(X, 2)])),
        of(0, ok([r(X, &[2]), r(Y, &[1])])),
    ];
    assert_eq!(broken(&history), []);
    assert!(!is_serializable(&history));
}

#[test]
fn the_read_only_anomaly_is_allowed_and_not_serializable() {
    let history = [
        of(1, ok([r(X, &[]), r(Y, &[]), a(X, 1)])),
        of(2, ok([a(Y, 2)])),
        of(2, ok([r(X, &[]), r(Y, &[2])])),
        of(0, ok([r(X, &[1]), r(Y, &[2])])),
    ];
    assert_eq!(broken(&history), []);
    assert!(!is_serializable(&history));
}

/// A site that was not told of a commit may be behind it: real time between sites orders nothing.
#[test]
fn a_stale_read_at_another_site_is_allowed() {
    let stale = |site| {
        [
            of(1, at(0, 1, [a(X, 1)])),
            of(site, at(2, 3, [r(X, &[])])),
            of(0, at(4, 5, [r(X, &[1])])),
        ]
    };
    assert_eq!(broken(&stale(2)), []);
    // At its own site it is a session, or its neighbour, that goes back.
    assert_eq!(broken(&stale(1)), [Class::SiteOrder]);
}

#[test]
fn a_lost_update_of_two_sites_is_found() {
    let history = [
        of(1, ok([r(X, &[]), a(X, 1)])),
        of(2, ok([r(X, &[]), a(X, 2)])),
        of(0, ok([r(X, &[1, 2])])),
    ];
    assert_eq!(broken(&history), [Class::LostUpdate]);
    // The same where one append is gone.
    let history = [
        of(1, at(0, 1, [r(X, &[]), a(X, 1)])),
        of(2, at(0, 1, [r(X, &[]), a(X, 2)])),
        of(0, at(2, 3, [r(X, &[2])])),
    ];
    assert!(broken(&history).contains(&Class::LostUpdate));
}

/// Two blind appends of one list that do not see each other, shown by what else they have read.
#[test]
fn a_conflict_of_writes_is_found() {
    let history = [
        of(1, ok([r(Y, &[]), a(X, 1), a(Z, 5)])),
        of(2, ok([a(Y, 2), r(Z, &[]), a(X, 3)])),
        of(0, ok([r(X, &[1, 3]), r(Y, &[2]), r(Z, &[5])])),
    ];
    assert_eq!(broken(&history), [Class::GSingle]);
}

#[test]
fn a_fractured_read_is_found() {
    let history = [
        of(1, ok([a(X, 1), a(Y, 2)])),
        of(2, ok([r(X, &[]), r(Y, &[2])])),
        of(0, ok([r(X, &[1])])),
    ];
    assert_eq!(broken(&history), [Class::GSingle]);
}

/// Site 2 answers an append of site 1. Site 3 sees the answer and not what it answers.
#[test]
fn an_effect_without_its_cause_is_found() {
    let history = [
        of(1, ok([a(X, 1)])),
        of(2, ok([r(X, &[1]), a(Y, 2)])),
        of(3, ok([r(Y, &[2]), r(X, &[])])),
    ];
    assert_eq!(broken(&history), [Class::GSingle]);
    // The cause is an earlier transaction of the same site, which the effect has not read.
    let history = [
        of(1, at(0, 1, [a(X, 1)])),
        of(1, at(2, 3, [a(Y, 2)])),
        of(3, at(2, 9, [r(Y, &[2]), r(X, &[])])),
        of(0, at(10, 11, [r(X, &[1])])),
    ];
    assert_eq!(broken(&history), [Class::SiteOrder]);
    // Of two sites it would be none.
    let mut apart = history;
    apart[1].site = 2;
    assert_eq!(broken(&apart), []);
}

/// What a transaction at a site has seen, a later one there sees, too, though neither has written.
#[test]
fn a_site_that_goes_back_is_found() {
    let history = [
        of(1, at(0, 9, [a(X, 1)])),
        of(2, at(2, 3, [r(X, &[1])])),
        of(2, at(4, 5, [r(X, &[])])),
        of(0, at(10, 11, [r(X, &[1])])),
    ];
    assert_eq!(broken(&history), [Class::SiteOrder]);
    let mut apart = history;
    apart[2].site = 3;
    assert_eq!(broken(&apart), []);
}

/// Both readers are of site 3, whose order has one append before the other.
#[test]
fn a_long_fork_within_a_site_is_found() {
    let fork = |sites: [usize; 2]| {
        [
            of(1, ok([a(X, 1)])),
            of(2, ok([a(Y, 2)])),
            of(sites[0], ok([r(X, &[1]), r(Y, &[])])),
            of(sites[1], ok([r(X, &[]), r(Y, &[2])])),
        ]
    };
    assert_eq!(broken(&fork([3, 3])), [Class::SiteFork]);
    assert_eq!(broken(&fork([3, 4])), []);
    assert!(!is_serializable(&fork([3, 4])));
}

#[test]
fn reads_of_what_was_aborted_or_was_not_final_are_found() {
    let aborted = [of(1, fail([a(X, 1)])), of(2, ok([r(X, &[1])]))];
    assert_eq!(broken(&aborted), [Class::G1a]);
    let intermediate = [
        of(1, ok([a(X, 1), a(X, 2)])),
        of(2, ok([r(X, &[1])])),
        of(0, ok([r(X, &[1, 2])])),
    ];
    assert!(broken(&intermediate).contains(&Class::G1b));
    let circular = [
        of(1, ok([a(X, 1), r(Y, &[2])])),
        of(2, ok([a(Y, 2), r(X, &[1])])),
    ];
    assert_eq!(broken(&circular), [Class::G1c]);
    let dirty = [
        of(1, ok([a(X, 1), a(Y, 2)])),
        of(2, ok([a(X, 3), a(Y, 4)])),
        of(0, ok([r(X, &[1, 3]), r(Y, &[4, 2])])),
    ];
    assert!(broken(&dirty).contains(&Class::G0));
}

/// A model of sites: each shows a prefix of one history, and what is its own. Its histories pass; with conflicts let through they do not.
#[test]
fn random_histories_of_sites_pass_and_conflicts_are_found() {
    for seed in 1..=30 {
        assert_eq!(broken(&model(seed, true)), [], "seed {seed}");
    }
    let found = (1..=30).filter(|seed| !broken(&model(*seed, false)).is_empty());
    assert!(found.count() > 25);
}

/// `certifies`: a transaction that appends to a list which others have appended to since its snapshot is refused.
fn model(seed: u64, certifies: bool) -> Vec<Txn> {
    use crate::rng::Rng;
    const SITES: usize = 3;
    let mut rng = Rng::new(seed);
    // Commits in their global order: the site, and the appends.
    let mut log: Vec<(usize, Vec<(u64, u64)>)> = Vec::new();
    // What a site shows of others, as a prefix of the log.
    let mut prefix = [0; SITES];
    let (mut history, mut next) = (Vec::new(), 1);
    let list = |log: &[(usize, Vec<(u64, u64)>)], site: usize, upto: usize, key: u64| {
        let shown = |(n, c): &(usize, &(usize, Vec<(u64, u64)>))| *n < upto || c.0 == site;
        let shown = log.iter().enumerate().filter(shown);
        let appends = shown.flat_map(|(_, c)| &c.1);
        let values: Vec<u64> = appends.filter(|w| w.0 == key).map(|w| w.1).collect();
        values
    };
    for i in 0..200u64 {
        let site = rng.index(SITES);
        let upto = prefix[site] + rng.index(log.len() - prefix[site] + 1);
        prefix[site] = upto;
        let (mut ops, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(3) {
            let key = rng.below(4) + 10 * (i / 60);
            if rng.percent(50) {
                let mut seen = list(&log, site, upto, key);
                seen.extend(
                    writes
                        .iter()
                        .filter(|w: &&(u64, u64)| w.0 == key)
                        .map(|w| w.1),
                );
                ops.push(r(key, &seen));
            } else {
                writes.push((key, next));
                ops.push(a(key, next));
                next += 1;
            }
        }
        let unseen = log
            .iter()
            .enumerate()
            .filter(|(n, c)| *n >= upto && c.0 != site);
        let lost = unseen
            .flat_map(|(_, c)| &c.1)
            .any(|w| writes.iter().any(|o| o.0 == w.0));
        let (invoke, complete) = (2 * i, 2 * i + 1);
        if lost && certifies {
            history.push(of(site, fail(ops)));
            continue;
        }
        history.push(of(site, at(invoke, complete, ops)));
        if !writes.is_empty() {
            log.push((site, writes));
        }
    }
    let keys: std::collections::BTreeSet<u64> =
        log.iter().flat_map(|c| c.1.iter().map(|w| w.0)).collect();
    let all = keys
        .iter()
        .map(|k| r(*k, &list(&log, SITES, log.len(), *k)));
    let all: Vec<Op> = all.collect();
    history.push(of(SITES, at(1000, 1001, all)));
    history
}
