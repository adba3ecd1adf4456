//! What each mechanism brings, as SCC Fig. 13 and 14: read-wait, then shared timestamps, then the tracker, then memory in place of
//! messages: for timestamps and slots, then for the log; with more and more replicas.
//!
//! All nodes and clients share one machine, so what is compared is CPU per read, latency and lag at a pace that leaves it idle enough, and not
//! throughput, which would need a machine for each.
//!
//! Left out on purpose: RDMA. The paper's last step is log and timestamps over it; here it is memory that nodes of one host share.

use super::cluster::{Done, Load, Media, measure};
use super::{Bench, median};
use crate::Result;
use crate::bench::svg::Chart;
use std::collections::BTreeMap;

/// (what, `canon.read_policy`, over what)
const STEPS: [(&str, &str, Media); 6] = [
    ("stale", "stale", Media::Tcp),
    ("read-wait", "read-wait", Media::Tcp),
    ("+ reuse", "lamport", Media::Tcp),
    ("+ tracker", "lamport+tracker", Media::Tcp),
    ("+ shared memory", "lamport+tracker", Media::Shared),
    ("+ ring", "lamport+tracker", Media::Ring),
];

/// Reads per second of all replicas together.
const READS: f64 = 4000.0;

impl Bench {
    pub(super) fn breakdown(&mut self) -> Result<()> {
        self.line(&format!("\n## Breakdown\n\nSCC Fig. 13 and 14: one mechanism after the other, over TCP but for the last two rows: with timestamps and slots read in shared memory, and with the log going through a ring there, too. {READS:.0} point selects per second, split among the replicas (8 threads in all), 200 updates per second at the primary. *Added* is what 1000 reads cost the primary beyond *stale* of the same round; *lag* is the age of what the first replica shows, by its own word.\n"));
        self.line("| replicas | | replicas' CPU us/read | primary CPU ms per 1000 reads | added | fetches per 1000 | p50 ms | p99 ms | lag ms | busy |\n|---|---|---|---|---|---|---|---|---|---|");
        let counts: &[usize] = if self.options.quick {
            &[1, 4]
        } else {
            &[1, 2, 4, 8]
        };
        let mut series: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
        for &n in counts {
            let clusters = [Media::Tcp, Media::Shared, Media::Ring];
            let clusters = clusters.map(|m| self.cluster(n, m, &[]).map(|c| (m, c)));
            let clusters: Vec<_> = clusters.into_iter().collect::<Result<_>>()?;
            let mut all: BTreeMap<&str, Vec<Done>> = BTreeMap::new();
            for round in 0..self.options.rounds.min(5) {
                let mut order = STEPS.to_vec();
                if round % 2 == 1 {
                    order.reverse();
                }
                for (name, policy, media) in order {
                    let load = |test, threads, rate, settings: String| Load {
                        test,
                        threads,
                        rate,
                        seconds: self.options.seconds,
                        hot: false,
                        settings,
                    };
                    let policy = format!("-c canon.read_policy={policy}");
                    let threads = (8 / n as u32).max(1);
                    let rate = READS / n as f64;
                    let reads = load("oltp_point_select", threads, rate, policy);
                    let writes = load("oltp_update_non_index", 2, 200.0, String::new());
                    let at = clusters.iter().find(|c| c.0 == media);
                    let (_, at) = at.ok_or("a cluster for each medium")?;
                    let one = measure(&self.clients, at, &reads, Some(&writes))?;
                    all.entry(name).or_default().push(one);
                }
            }
            for (name, ..) in STEPS {
                let own = &all[name];
                let pairs = own.iter().zip(&all["stale"]);
                let added = pairs.map(|(a, b)| a.primary_us - b.primary_us).collect();
                let cpu = median(own, |d| d.replica_us);
                let row = format!(
                    "| {n} | {name} | {cpu:.1} | {:.2} | {:.2} | {:.0} | {:.3} | {:.3} | {:.1} | {:.0} % |",
                    median(own, |d| d.primary_us),
                    super::interval(added).0,
                    median(own, |d| d.fetches),
                    median(own, |d| d.p50_ms),
                    median(own, |d| d.p99_ms),
                    median(own, |d| d.lag_ms),
                    100.0 * median(own, |d| d.busy),
                );
                self.line(&row);
                series.entry(name).or_default().push(Some(cpu));
            }
        }
        let chart = Chart {
            title: "CPU of the replicas per read",
            x: "replicas",
            y: "microseconds per read, replay included",
            places: counts.iter().map(usize::to_string).collect(),
            series: series.into_iter().map(|(p, v)| (p.to_owned(), v)).collect(),
            line_at: None,
        };
        self.charts.push(("breakdown", chart.svg()));
        Ok(())
    }
}
