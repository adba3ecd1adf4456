//! The table of a load at several places: each way's rate, and what a site makes over each other way.
//!
//! Left out on purpose: the loads.

use crate::bench::svg::Chart;
use std::fmt::Write;

use super::measure::{Rounds, shown, verdict};
use super::nodes::Way;

/// The rates of each place and way, the ratios to a site, and what was told to try again. A ratio that void rounds leave open is `void`.
pub fn table(places: &[u64], all: &[(Way, Rounds)]) -> String {
    let mut out = "| round trip, ms |".to_owned();
    for (way, _) in all {
        let _ = write!(out, " {} |", way.name());
    }
    let _ = writeln!(out, "\n|{}", "---|".repeat(all.len() + 1));
    for (place, rtt) in places.iter().enumerate() {
        let _ = write!(out, "| {rtt} |");
        for (_, rounds) in all {
            let _ = write!(out, " {} |", shown(rounds.rate(place)));
        }
        out += "\n";
    }
    out += "\nTransactions per second and client: of all rounds together, least and most of the rounds.\n\n";
    out += &ratios(places, all);
    out += &told(all);
    out
}

fn ratios(places: &[u64], all: &[(Way, Rounds)]) -> String {
    let mut out = "| a client at a site over one at the | mean of the places | | at the farthest | |\n|---|---|---|---|---|\n".to_owned();
    for (way, rounds) in all.iter().skip(1) {
        let ratio = |place| Some(all[0].1.rate(place)?.0 / rounds.rate(place)?.0.max(1e-9));
        let ratios: Vec<f64> = (0..places.len()).filter_map(ratio).collect();
        let name = way.name();
        let Some(farthest) = ratios.last().filter(|_| ratios.len() == places.len()) else {
            let _ = writeln!(out, "| {name} | void | | void | |");
            continue;
        };
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let bars = (
            verdict(mean, way.bar().map(|b| b.0)),
            verdict(*farthest, way.bar().map(|b| b.1)),
        );
        let _ = writeln!(
            out,
            "| {name} | {mean:.1} | {} | {farthest:.1} | {} |",
            bars.0, bars.1
        );
    }
    out
}

/// What each way's transactions were told to try again for, and how busy the machine was; the clients and the delayed links are the bench's own.
fn told(all: &[(Way, Rounds)]) -> String {
    let mut out = "\n| way | transactions | told to try again | busy at most | void rounds |\n|---|---|---|---|---|\n".to_owned();
    for (way, rounds) in all {
        let sum = rounds.all();
        let causes: Vec<String> = sum.lost.iter().map(|(w, n)| format!("{n} {w}")).collect();
        let causes = match causes.is_empty() {
            true => "none".into(),
            false => causes.join("<br>"),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {causes} | {} | {} |",
            way.name(),
            sum.transactions,
            rounds.most_busy(),
            rounds.void
        );
    }
    out + "\n"
}

pub fn chart(title: &str, places: &[u64], all: &[(Way, Rounds)]) -> String {
    let series = all.iter().map(|(way, rounds)| {
        let rates = (0..places.len()).map(|p| rounds.rate(p).map(|r| r.0));
        (way.name().to_owned(), rates.collect())
    });
    let chart = Chart {
        title,
        x: "round trip, ms",
        y: "transactions per second and client",
        places: places.iter().map(u64::to_string).collect(),
        series: series.collect(),
        line_at: None,
    };
    chart.svg()
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::rounds;
    use super::*;

    fn ways(busy: f64) -> Vec<(Way, Rounds)> {
        vec![
            (Way::Site, rounds(&[100, 60], 0.5)),
            (Way::Replica, rounds(&[50, 6], 0.5)),
            (Way::Primary, rounds(&[100, 5], busy)),
            (Way::Peer, rounds(&[40, 4], 0.5)),
        ]
    }

    #[test]
    fn the_farthest_place_is_the_last() {
        let text = table(&[1, 185], &ways(0.5));
        let last = "| 185 | 6.00 (6.00 .. 6.00) | 0.60";
        assert!(text.contains(last), "{text}");
        let primary = "| primary behind the delay | 6.5 | at least 7.6: **missed** | 12.0 | at least 12: holds |";
        assert!(text.contains(primary), "{text}");
    }

    #[test]
    fn what_is_void_has_no_ratio() {
        let text = table(&[1, 185], &ways(0.8));
        let primary = "| primary behind the delay | void | | void | |";
        assert!(text.contains(primary), "{text}");
        let told = "| primary behind the delay | 0 | none | 80 % (clients 10 %, links 5 %) | 1 |";
        assert!(text.contains(told), "{text}");
    }
}
