//! Planted bugs, each of which some seed must find. One test, because the switches are the process's.
#![cfg(feature = "faults")]

use sim::scenario::Forgets;

/// Seeds that are tried for a fault.
const SEEDS: u64 = 140;

#[test]
fn every_planted_fault_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    for fault in [
        // A snapshot that is not at a transaction's end.
        "replay.snapshot_inside_transaction",
        // A deferred write that the worker's bound forgets.
        "replay.deferred_forgotten",
        // A replica that shows beyond *published*.
        "replay.beyond_published",
        // A node that rejoins with what it must set aside.
        "ship.diverged_kept",
        // A transaction that moves without what it has read.
        "forward.no_footprint",
        // A timestamp whose fetch began before the read arrived.
        "read.old_fetch",
        // A read that may be old, of what the primary had and is not here yet.
        "read.as_of_unshown",
        // A slot that another row lowers.
        "read.slot_lowered",
        // A group that counts as durable before it is.
        "pipeline.flushed_unsynced",
        // A primary that hands over before its last commits are in its log.
        "promote.sealed_unflushed",
        // A delta that is added to the snapshot's value, not to the newest.
        "split.stale_value",
        // Deltas that are granted though others have reserved what they take.
        "split.no_escrow",
        // Reads that take the share of the row for the value.
        "split.bit_ignored",
        // The mode rows: a step of the balance that moves off an old amount.
        "split.balance_stale",
        // A replica that acknowledges as durable what it has in memory only.
        "receiving.received_is_persisted",
        // A replica that takes log of a term which is not in its directory.
        "receiving.terms_unwritten",
        // A snapshot for a transaction at a replica, which the primary lets go when it has answered.
        "holding.answered_is_done",
        // A replica that calls itself as new as its primary because it has shown the end of a batch.
        "freshness.upto_alone",
        // A primary that answers strong reads before it shows what was acknowledged before its term.
        "reading.leads_at_once",
        // A read that is not compared with slots and does not wait for the log either.
        "reading.untracked_at_once",
    ] {
        env::fault::plant(fault, true);
        let found = (1..=SEEDS).find_map(|seed| sim::run(seed, false).err());
        env::fault::plant(fault, false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("{SEEDS} seeds did not find {fault}")
        });
        println!("{fault}: {}", why.lines().next().unwrap_or_default());
    }
    // Of sites.
    for fault in [
        // A request that is repeated runs again.
        "site.number_again",
        // A site that takes a lost verdict for a refusal.
        "site.pending_aborted",
        // A second copy of a request that was refused, and commits.
        "site.refused_again",
        // A certifier that takes what is newest for what was seen.
        "candidate.no_versions",
    ] {
        env::fault::plant(fault, true);
        let found = (1..=SEEDS).find_map(|seed| sim::run_sites(seed, false).err());
        env::fault::plant(fault, false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("{SEEDS} seeds did not find {fault}")
        });
        println!("{fault}: {}", why.lines().next().unwrap_or_default());
    }
    // One for which chance has to work too long: a copy that takes away what is here before it has come.
    let script = sim::scenario::lost_as_the_old_primary_comes_back;
    for seed in 1..=3 {
        env::fault::plant("wal.copy_empties_first", true);
        let found = script(seed, false).err();
        env::fault::plant("wal.copy_empties_first", false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("the scenario did not find a copy that empties first, seed {seed}")
        });
        println!("scenario: {}", why.lines().next().unwrap_or_default());
    }
    // A group that no memory has kept, passed over as positions without commits.
    let script = sim::scenario::a_replica_comes_between_a_write_and_its_sync;
    for seed in 1..=3 {
        env::fault::plant("sending.gap_is_hole", true);
        let found = script(seed, false).err();
        env::fault::plant("sending.gap_is_hole", false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("the scenario did not find a gap that is passed over, seed {seed}")
        });
        println!("scenario: {}", why.lines().next().unwrap_or_default());
    }
    // A node that forgets that it holds what the cluster does not have.
    let script = sim::scenario::the_copy_of_a_parted_node_does_not_come;
    for seed in 1..=3 {
        env::fault::plant("wal.diverged_forgotten", true);
        let found = script(seed, false).err();
        env::fault::plant("wal.diverged_forgotten", false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("the scenario did not find a node that forgets its parting, seed {seed}")
        });
        println!("scenario: {}", why.lines().next().unwrap_or_default());
    }
    // A number of an earlier primary that its successor is told to let go.
    let script = sim::scenario::holds_outlive_their_primary;
    let fault = "holding.any_connection";
    env::fault::plant(fault, true);
    let found = (1..=3).find_map(|seed| script(seed, false).err());
    env::fault::plant(fault, false);
    let why = found.unwrap_or_else(|| {
        let _ = std::panic::take_hook();
        panic!("the scenario did not find {fault}")
    });
    println!("{fault}: {}", why.lines().next().unwrap_or_default());
    // And those of a disk that lies about a sync.
    for (fault, what) in [
        // A start that does not look at its anchor.
        ("node.anchor_unchecked", Forgets::Anchored),
        // A primary that does not ask its replicas.
        ("node.nobody_asked", Forgets::Newest),
        // A replica that gives way to a primary which has lost log of their own term.
        ("ship.ahead_set_aside", Forgets::Alone),
    ] {
        env::fault::plant(fault, true);
        let found = sim::scenario::a_primary_forgets(1, false, what).err();
        env::fault::plant(fault, false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("the scenario {what:?} did not find {fault}")
        });
        println!("{fault}: {}", why.lines().next().unwrap_or_default());
    }
    // What has not proven that it is a node has commits acknowledged, or deposes a primary.
    let script = sim::scenario::a_stranger_acknowledges;
    for fault in ["ship.unproven_ack", "ship.unproven_term"] {
        env::fault::plant(fault, true);
        let found = (1..=3).find_map(|seed| script(seed, false).err());
        env::fault::plant(fault, false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("the scenario did not find {fault}")
        });
        println!("{fault}: {}", why.lines().next().unwrap_or_default());
    }
    // The bare word of a node that says it is ahead is believed.
    env::fault::plant("ship.bare_word", true);
    let found = sim::scenario::a_node_says_that_it_is_ahead(1, false).err();
    env::fault::plant("ship.bare_word", false);
    env::fault::plant("ship.says_ahead", false);
    let why = found.unwrap_or_else(|| {
        let _ = std::panic::take_hook();
        panic!("the scenario did not find that a bare word is believed")
    });
    println!("ship.bare_word: {}", why.lines().next().unwrap_or_default());
    for seed in 1..=3 {
        let played = sim::scenario::a_node_says_that_it_is_ahead(seed, false);
        let report = played.unwrap_or_else(|why| {
            let _ = std::panic::take_hook();
            panic!("seed {seed}: {why}")
        });
        assert!(report.doubted > 0);
    }
    let _ = std::panic::take_hook();
}
