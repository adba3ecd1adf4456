//! Planted bugs of read leases, each of which some seed must find. One test, because the switches are the process's.
#![cfg(feature = "faults")]

/// Seeds that are tried for a fault. Only a read that is stale, or shows what is not published, finds it.
const SEEDS: u64 = 140;

#[test]
fn every_planted_fault_of_leases_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    // With the seed that is tried first: the order that a fault needs may be rare.
    for (fault, first) in [
        // A primary that does not wait out what others, or an earlier life of its own, have granted.
        ("lease.not_waited_out", 45),
        // Commits that are acknowledged before a holder has received them.
        ("lease.unreceived_ack", 1),
        // A commit that is acknowledged and not published.
        ("lease.ack_not_published", 1),
        // A holder that shows what has come and is not published.
        ("lease.reads_unpublished", 1),
        // Slots at the holder that are raised after what has come counts as received.
        ("lease.tracker_late", 1),
        // A holder that gives its lease back and answers by it still.
        ("lease.given_back_and_held", 1),
    ] {
        env::fault::plant(fault, true);
        let fails = |seed| sim::run_leases(seed, false).err();
        let mut all = (first..first + SEEDS).filter_map(fails);
        let found = all.find(|why| why.contains("a strong read"));
        env::fault::plant(fault, false);
        match found {
            Some(why) => println!("{fault}: {}", why.lines().next().unwrap_or_default()),
            None => missed.push(fault),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{SEEDS} seeds did not find {missed:?}");
}
