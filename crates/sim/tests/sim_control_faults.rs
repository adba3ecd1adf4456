//! Planted bugs of the control plane, each of which a seed must find. One test, because the switches are the process's.
#![cfg(feature = "faults")]

use sim::control::{Report, run, run_leader_leaves};

type Run = fn(u64, bool) -> Result<Report, String>;

/// Seeds that are tried for a fault.
const SEEDS: u64 = 400;

#[test]
fn every_planted_fault_of_the_control_plane_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    // With the seed that is tried first, and a part of what it must say.
    let faults: [(&str, Run, u64, &str); 5] = [
        // A primary that counts its lease from the answer.
        ("lease.from_answer", run, 1, "hold a lease"),
        // A consensus leader that does not wait out what earlier ones have granted.
        ("lease.not_waited_out", run, 1, "hold a lease"),
        // The copy that answers first is named.
        ("failover.any_replica", run, 1, "without write"),
        // Commits that wait for no copy before the members have agreed on that.
        ("degrade.before_raft", run, 1, "without write"),
        // A consensus leader that takes itself out of the members.
        ("consensus.out_at_once", run_leader_leaves, 1, "Only leader"),
    ];
    for (fault, run, first, says) in faults {
        env::fault::plant(fault, true);
        let fails = |seed| run(seed, false).err();
        let mut all = (first..first + SEEDS).filter_map(fails);
        let found = all.find(|why| why.contains(says));
        env::fault::plant(fault, false);
        match found {
            Some(why) => println!("{fault}: {}", why.lines().next().unwrap_or_default()),
            None => missed.push(fault),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{SEEDS} seeds did not find {missed:?}");
}
