//! Planted bugs that small histories of sites must find.
#![cfg(feature = "faults")]

use sim::histories::run::whole_batch;

/// One test, because the switches are the process's.
#[test]
fn small_histories_find_planted_faults() {
    std::panic::set_hook(Box::new(|_| {}));
    for fault in [
        // A site that takes what it has received last for the end of what it has.
        "site.gap_is_max",
        // Versions that only an open transaction sees are taken away.
        "site.own_reclaimed",
        // A request that is repeated runs again.
        "site.number_again",
        // A second copy of a request that was refused, and commits.
        "site.refused_again",
        // A candidate that is older than a change of rights.
        "site.old_rights",
        // A client that is told of a commit before its site shows it.
        "site.answers_unshown",
        // A certifier that takes what is newest for what was seen.
        "candidate.no_versions",
        // Guards that hold at the site only.
        "candidate.no_guards",
        // Rows that are locked at the site only.
        "candidate.no_locks",
        // A row that came and went, and is known still, counts as never there.
        "candidate.any_tombstone",
        // Reads that do not travel.
        "forward.no_footprint",
        // Unique keys that the commit does not look at.
        "commit.no_unique",
    ] {
        env::fault::plant(fault, true);
        let found = (0..200).find_map(|number| whole_batch(number).err());
        env::fault::plant(fault, false);
        let why = found.unwrap_or_else(|| {
            let _ = std::panic::take_hook();
            panic!("no history shows {fault}")
        });
        println!("{fault}: {why}");
    }
    let _ = std::panic::take_hook();
}
