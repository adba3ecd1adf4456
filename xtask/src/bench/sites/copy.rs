//! A primary whose commits wait for a copy beside it, under sites at all places: what the copy costs where the distance costs most.
//!
//! The copy is there all the time; the primary starts again between the turns, with `synchronous_replicas` of 0 and of 1.
//!
//! Left out on purpose: a copy at a distance, which every commit waits for as long.

use crate::Result;
use std::fmt::Write;

use super::measure::{Load, Rounds, at_all, shown};
use super::nodes::{Nodes, Way};

/// With the copy, so much of the rate without at least.
const BAR: f64 = 0.97;
const NAMES: [&str; 2] = ["without", "with a copy"];

pub fn run<L: Load + 'static>(
    nodes: &mut Nodes,
    places: &[u64],
    clients: usize,
    (rounds, seconds): (usize, u64),
    make: impl Fn(usize, usize, usize) -> L,
) -> Result<String> {
    let _copy = nodes.copy()?;
    let mut all: [Rounds; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            nodes.wait_for_copies((at == 1).then_some("1"))?;
            let ports = nodes.ports(Way::Site, places)?;
            let done = at_all(&ports, clients, seconds, |p, c| make(round, p, c))?;
            println!(
                "round {} of {rounds}, {}: busy {}",
                round + 1,
                NAMES[at],
                done.1
            );
            all[at].take(done);
            nodes.catch_up()?;
        }
    }
    nodes.wait_for_copies(None)?;
    Ok(table(places, &all))
}

fn table(places: &[u64], all: &[Rounds; 2]) -> String {
    let mut out = "Sites, and a primary that waits for a copy beside it (`synchronous_replicas = 1`):\n\n\
                   | round trip, ms | without | with a copy | with over without |\n|---|---|---|---|\n"
        .to_owned();
    let mut ratios = Vec::new();
    for (place, rtt) in places.iter().enumerate() {
        let [without, with] = [0, 1].map(|n| all[n].rate(place));
        let ratio = without.zip(with).map(|(o, w)| w.0 / o.0.max(1e-9));
        ratios.extend(ratio);
        let ratio = ratio.map_or("void".into(), |r| format!("{r:.3}"));
        let _ = writeln!(
            out,
            "| {rtt} | {} | {} | {ratio} |",
            shown(without),
            shown(with)
        );
    }
    if ratios.len() == places.len() {
        let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
        let held = if mean >= BAR { "holds" } else { "**missed**" };
        let _ = writeln!(out, "\nMean {mean:.3}, at least {BAR}: {held}.");
    }
    let void = [&all[0], &all[1]].map(|r| format!("{} ({})", r.void, r.most_busy()));
    let _ = writeln!(out, "Void rounds, and busy at most: {}.\n", void.join(", "));
    out
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::rounds;
    use super::*;

    #[test]
    fn the_mean_of_the_places_is_held_to_the_bar() {
        let text = table(
            &[1, 185],
            &[rounds(&[100, 50], 0.5), rounds(&[96, 49], 0.5)],
        );
        assert!(text.contains("Mean 0.970, at least 0.97: holds."), "{text}");
        let void = table(&[1], &[rounds(&[100], 0.5), rounds(&[96], 0.9)]);
        assert!(!void.contains("Mean"), "{void}");
    }
}
