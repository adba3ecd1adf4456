//! Faults planted in replay, each of which the model must find: a check that cannot fail is no check.
#![cfg(all(feature = "faults", not(feature = "shuttle")))]

mod histories;
#[path = "histories/stepped.rs"]
mod stepped;

use replica::Policy;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds tried before a fault counts as missed.
const SEEDS: u64 = 100;

/// The first seed that finds the fault, with what it says.
fn found(fault: &str, policy: Policy) -> Option<(u64, String)> {
    env::fault::plant(fault, true);
    let first = (0..SEEDS).find_map(|seed| {
        let run = catch_unwind(AssertUnwindSafe(|| stepped::run(policy, seed)));
        match run {
            Ok(Ok(())) => None,
            Ok(Err(what)) => Some((seed, what)),
            Err(panic) => {
                let what = panic.downcast_ref::<String>().cloned();
                Some((seed, what.unwrap_or_else(|| "an assertion".into())))
            }
        }
    });
    env::fault::plant(fault, false);
    first
}

// One test: what is planted is planted for the whole process.
#[test]
fn planted_faults_are_found() {
    for (fault, policy) in [
        ("replay.snapshot_inside_transaction", Policy::Row),
        ("replay.snapshot_inside_transaction", Policy::Page),
        ("replay.deferred_forgotten", Policy::Row),
        ("replay.deferred_forgotten", Policy::Transaction),
        ("replay.beyond_published", Policy::Row),
        ("replay.thomas", Policy::Row),
    ] {
        let (seed, what) = found(fault, policy)
            .unwrap_or_else(|| panic!("{fault} is not found with policy {policy}"));
        println!("{fault}, {policy}: seed {seed}: {what}");
        stepped::run(policy, seed).unwrap_or_else(|e| panic!("without the fault: {e}"));
    }
}
