//! A few seeds in the ordinary tests; CI runs many (`cargo xtask sim`).

use sim::scenario::Forgets;

#[test]
fn a_few_seeds_hold() {
    let mut all = sim::Report::default();
    for seed in 1..=12 {
        let report = sim::run(seed, false).unwrap_or_else(|why| panic!("{why}"));
        all.add(&report);
    }
    println!("{all}");
    // Runs in which nothing happens prove nothing.
    assert!(all.crashes > 20 && all.promotions > 5 && all.bootstraps > 30);
    assert!(all.ended > 10);
    assert!(all.acknowledged > 200 && all.snapshots > 500);
    assert!(all.strong > 500 && all.ahead > 50);
    assert!(all.held > 50 && all.held_moved > 10);
    assert!(all.deltas > 150 && all.exact > 10 && all.too_few > 20 && all.worked > 40);
}

#[test]
fn the_scenarios_hold() {
    for seed in 1..=4 {
        let played = sim::scenario::lost_as_the_old_primary_comes_back(seed, false);
        let report = played.unwrap_or_else(|why| panic!("{why}"));
        assert!(report.promotions >= 2 && report.set_aside >= 1);
        let played = sim::scenario::a_stranger_acknowledges(seed, false);
        played.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let played = sim::scenario::holds_outlive_their_primary(seed, false);
        played.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let played = sim::scenario::the_copy_of_a_parted_node_does_not_come(seed, false);
        played.unwrap_or_else(|why| panic!("{why}"));
        let played = sim::scenario::a_replica_comes_between_a_write_and_its_sync(seed, false);
        played.unwrap_or_else(|why| panic!("{why}"));
        let played = sim::scenario::the_old_primary_cannot_ask(seed, false);
        let report = played.unwrap_or_else(|why| panic!("{why}"));
        assert!(report.promotions >= 1 && report.set_aside >= 1);
    }
}

/// A disk that lies about a sync: refused, by the anchor or by a replica that has more, or stopped as soon as one comes; and nothing
/// acknowledged is lost when a replica takes over.
#[test]
fn a_primary_that_lost_log_does_not_serve() {
    for seed in 1..=4 {
        for what in [Forgets::Anchored, Forgets::Newest, Forgets::Alone] {
            let played = sim::scenario::a_primary_forgets(seed, false, what);
            let report = played.unwrap_or_else(|why| panic!("{what:?}: {why}"));
            assert_eq!(report.false_premises, Vec::<String>::new());
            assert!(report.promotions >= 1);
        }
    }
}

/// The same by chance, in clusters where everything else breaks, too.
#[test]
fn disks_that_lie_are_found_out() {
    let mut all = sim::Report::default();
    for seed in (1..=20).map(|n| n * 4) {
        let report = sim::run(seed, false).unwrap_or_else(|why| panic!("{why}"));
        all.add(&report);
    }
    println!("{all}");
    assert!(all.tails > 8 && all.short > 3);
}

#[test]
fn a_seed_repeats_itself() {
    let twice: Vec<String> = (0..2)
        .map(|_| {
            format!(
                "{}",
                sim::run(3, false).unwrap_or_else(|why| panic!("{why}"))
            )
        })
        .collect();
    assert_eq!(twice[0], twice[1]);
}

/// Replicas that are sites: no number commits twice, what it replaced and read is as it was found, and what was refused has not happened.
#[test]
fn a_few_seeds_hold_where_replicas_are_sites() {
    let mut all = sim::Report::default();
    for seed in 1..=12 {
        let report = sim::run_sites(seed, false).unwrap_or_else(|why| panic!("{why}"));
        all.add(&report);
    }
    println!("{all}");
    assert!(all.certified > 50 && all.not_certified > 50 && all.sent_again > 50);
}

/// Replicas that hold read leases, clocks that drift, and machines that stand still: no read by a lease is stale, and none shows what is not published.
#[test]
fn a_few_seeds_hold_where_replicas_hold_leases() {
    let mut all = sim::Report::default();
    for seed in 1..=12 {
        let report = sim::run_leases(seed, false).unwrap_or_else(|why| panic!("{why}"));
        all.add(&report);
    }
    println!("{all}");
    assert!(all.leased > 200 && all.leased_ahead > 20 && all.pauses > 50);
    assert!(all.acknowledged > 200 && all.promotions > 5);
}
