//! BenchBase: eleven benchmarks in one Java program over JDBC.
//!
//! ```text
//! checkout ── mvn package ──▶ benchbase.jar        config/postgres/sample_NAME_config.xml ── `configuration` ──▶ NAME.xml
//!     -b NAME -c NAME.xml --create=true --load=true
//!     -b NAME -c NAME.xml --execute=true --directory=RESULTS --json-histograms=FILE ──▶ *.summary.json, FILE ── `figures` ──▶ Figures
//! ```
//! BenchBase's throughput counts every transaction that ended within the measured time, also one that was rolled back. Its goodput counts those that
//! committed, but those of the warm-up too. So the figure here is the throughput times the share that committed of all that ended. `retries` is
//! high enough for each transaction to end, by a commit, a rollback of the benchmark's own or an error.
//!
//! Left out on purpose: BenchBase's other benchmarks, which are analytic, or have no load of their own.

use super::driver::{Driver, Figures, LOAD_LIMIT, Place, READ_COMMITTED};
use crate::Result;
use crate::bench::peers::output;
use crate::guard::Guard;
use crate::server::USER;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each benchmark with its scale factor, which keeps the load of a small machine within a minute or two.
pub const NAMES: [(&str, &str); 11] = [
    ("tpcc", "2"),
    ("smallbank", "0.1"),
    ("tatp", "1"),
    ("ycsb", "10"),
    ("twitter", "1"),
    ("wikipedia", "1"),
    ("auctionmark", "0.1"),
    ("seats", "0.1"),
    ("epinions", "1"),
    ("voter", "1"),
    ("sibench", "1"),
];

/// Seconds before the measured time, for the Java virtual machine to compile.
const WARM_UP: u32 = 5;
/// Tries of one transaction.
const TRIES: &str = "100000";
/// Seconds that a build may take.
const BUILD_LIMIT: u32 = 1200;

/// How the samples name isolation levels.
const LEVEL: &str = "TRANSACTION_";

/// Twitter's tables at scale factor 1: (tweets, users).
const TWITTER: (u64, u64) = (20_000, 500);
/// Lines of a trace.
const TRACE: u64 = 10_000;

/// A checkout with its program.
pub struct BenchBase {
    /// Where `benchbase.jar` lies with what it needs.
    home: PathBuf,
    java: PathBuf,
}

/// One benchmark.
pub struct Benchmark {
    name: &'static str,
    scale: &'static str,
    sample: String,
    home: PathBuf,
    java: PathBuf,
}

/// Finds the program in a checkout, or builds it.
pub fn built(checkout: &Path, guard: &mut Guard) -> Result<BenchBase> {
    let target = checkout.join("target");
    let mut home = jar_below(&target, 3);
    if home.is_none() {
        println!("building BenchBase");
        let pom = std::fs::read_to_string(checkout.join("pom.xml"));
        let pom = pom.map_err(|e| format!("{}: {e}", checkout.display()))?;
        // A newer Java would warn that it compiles for this one, and the pom makes warnings errors.
        let release = value(&pom, "java.version")?;
        let mut mvn = Command::new("mvn");
        mvn.current_dir(checkout);
        mvn.args(["--batch-mode", "--quiet", "-P", "postgres"]);
        // Its tests, the style of its sources, and archives of what is then unpacked again.
        mvn.args(["-Dmaven.test.skip=true", "-Dfmt.skip=true"]);
        mvn.arg(format!("-Dmaven.compiler.release={release}"));
        mvn.arg("-Ddescriptors=src/main/assembly/dir.xml");
        output(mvn.arg("package"), BUILD_LIMIT, guard)?;
        home = jar_below(&target, 3);
    }
    let java = match std::env::var_os("JAVA_HOME") {
        Some(java) => PathBuf::from(java).join("bin").join("java"),
        None => "java".into(),
    };
    let home = home.ok_or(format!("no benchbase.jar below {}", target.display()))?;
    Ok(BenchBase { home, java })
}

/// The directory of `benchbase.jar`, at most `depth` levels down.
fn jar_below(directory: &Path, depth: usize) -> Option<PathBuf> {
    if directory.join("benchbase.jar").is_file() {
        return Some(directory.to_path_buf());
    }
    if depth == 0 {
        return None;
    }
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let mut below: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    below.sort();
    below.iter().find_map(|d| jar_below(d, depth - 1))
}

impl BenchBase {
    pub fn benchmark(&self, name: &str) -> Result<Benchmark> {
        let known = NAMES.iter().find(|n| n.0 == name);
        let (name, scale) = *known.ok_or(format!("no benchmark `{name}`"))?;
        let sample = format!("config/postgres/sample_{name}_config.xml");
        let sample = self.home.join(sample);
        Ok(Benchmark {
            name,
            scale,
            sample: std::fs::read_to_string(&sample)
                .map_err(|e| format!("{}: {e}", sample.display()))?,
            home: self.home.clone(),
            java: self.java.clone(),
        })
    }
}

impl Benchmark {
    /// The sample with other values. Elements that it does not have are an error, as they have then other names.
    fn configuration(&self, at: &Place, level: &str) -> Result<String> {
        let url = format!(
            "jdbc:postgresql://127.0.0.1:{}/{USER}?sslmode=disable&amp;ApplicationName={}&amp;reWriteBatchedInserts=true",
            at.port, self.name
        );
        let level = format!("{LEVEL}{}", level.to_uppercase().replace(' ', "_"));
        let mut xml = self.sample.clone();
        for (element, value) in [
            ("url", url.as_str()),
            ("username", USER),
            ("password", "-"),
            ("isolation", &level),
            ("scalefactor", self.scale),
            ("terminals", &at.terminals.to_string()),
            ("time", &at.seconds.to_string()),
            ("rate", "unlimited"),
        ] {
            xml = with(&xml, element, value)?;
        }
        let warm_up = format!("<warmup>{WARM_UP}</warmup>");
        xml = before(&xml, "</work>", &warm_up)?;
        xml = before(
            &xml,
            "</parameters>",
            &format!("<retries>{TRIES}</retries>"),
        )?;
        if self.name == "twitter" {
            for (element, rows) in [("tracefile", TWITTER.0), ("tracefile2", TWITTER.1)] {
                let lies = self.home.join(value(&xml, element)?);
                if !lies.exists() {
                    let file = at.directory.join(element);
                    std::fs::write(&file, trace(rows)).map_err(|e| e.to_string())?;
                    xml = with(&xml, element, &file.display().to_string())?;
                }
            }
        }
        Ok(xml)
    }

    /// Runs BenchBase with a configuration; what it said.
    fn run(
        &self,
        at: &Place,
        level: &str,
        args: &[String],
        seconds: u32,
        guard: &mut Guard,
    ) -> Result<String> {
        let file = at.directory.join(format!("{}.xml", self.name));
        std::fs::write(&file, self.configuration(at, level)?).map_err(|e| e.to_string())?;
        let mut java = Command::new(&self.java);
        java.current_dir(&self.home)
            .args(["-jar", "benchbase.jar", "-b", self.name, "-c"]);
        output(java.arg(&file).args(args), seconds, guard).map_err(|e| complaint(&e))
    }
}

impl Driver for Benchmark {
    fn name(&self) -> String {
        self.name.into()
    }

    fn scale(&self) -> String {
        format!("scale factor {}", self.scale)
    }

    fn levels(&self) -> Vec<String> {
        let own = value(&self.sample, "isolation").unwrap_or_default();
        let own = own.trim_start_matches(LEVEL).replace('_', " ");
        let mut levels = vec![READ_COMMITTED.to_owned(), own.to_lowercase()];
        levels.dedup();
        levels
    }

    fn load(&self, at: &Place, guard: &mut Guard) -> Result<()> {
        let args = ["--create=true", "--load=true"].map(String::from);
        self.run(at, READ_COMMITTED, &args, LOAD_LIMIT, guard)
            .map(drop)
    }

    fn execute(&self, at: &Place, level: &str, guard: &mut Guard) -> Result<Figures> {
        let results = at.directory.join("results");
        let _ = std::fs::remove_dir_all(&results);
        std::fs::create_dir_all(&results).map_err(|e| e.to_string())?;
        let histograms = results.join("histograms.json");
        let args = [
            "--execute=true".to_owned(),
            format!("--directory={}", results.display()),
            format!("--json-histograms={}", histograms.display()),
        ];
        let limit = (at.seconds + WARM_UP) * 3 + 120;
        let said = self.run(at, level, &args, limit, guard)?;
        let read = |file: &Path| -> Result<Value> {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|e| format!("{}: {e}", file.display()))?;
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))
        };
        let files = std::fs::read_dir(&results).map_err(|e| e.to_string())?;
        let mut files = files.flatten().map(|e| e.path());
        let summary = files.find(|f| f.to_string_lossy().ends_with(".summary.json"));
        let summary = summary.ok_or("BenchBase wrote no summary")?;
        figures(&read(&summary)?, &read(&histograms)?, &said)
    }
}

/// What a run's summary, its histograms and its log say.
fn figures(summary: &Value, histograms: &Value, said: &str) -> Result<Figures> {
    let number = |value: &Value, what: &str| {
        let found = value.as_f64();
        found.ok_or(format!("BenchBase's results have no number for {what}"))
    };
    let count = |what: &str| number(&histograms[what]["NUM_SAMPLES"], what);
    let (committed, rolled_back, errors) =
        (count("completed")?, count("aborted")?, count("unexpected")?);
    let throughput = "Throughput (requests/second)";
    let throughput = number(&summary[throughput], throughput)?;
    let p99 = "99th Percentile Latency (microseconds)";
    let p99 = number(&summary["Latency Distribution"][p99], p99)?;
    if committed == 0.0 {
        return Err(complaint(&format!("no transaction committed\n{said}")));
    }
    Ok(Figures {
        committed,
        tps: throughput * committed / (committed + rolled_back + errors),
        p99_ms: p99 / 1e3,
        cpu_us: 0.0,
        rolled_back: Some(rolled_back / committed),
        retried: count("rejected")? / committed,
        errors: errors / committed,
        states: states(said),
    })
}

/// How often each SQLSTATE ended a transaction that was not tried again.
fn states(said: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for line in said.lines().filter(|l| l.contains("will not be retried")) {
        let state = line.split_once("sql state [").map(|l| l.1);
        if let Some((state, _)) = state.and_then(|l| l.split_once(']')) {
            *found.entry(state.to_owned()).or_insert(0) += 1;
        }
    }
    found
}

/// Of all that a failed run said, the lines that name errors.
fn complaint(said: &str) -> String {
    let telling = |l: &&str| {
        ["ERROR", "FATAL", "Exception", "Error:"]
            .iter()
            .any(|w| l.contains(w))
    };
    let mut lines: Vec<&str> = said.lines().take(1).collect();
    lines.extend(said.lines().skip(1).filter(telling).take(12));
    lines.join("\n")
}

/// What stands in the first element of this name.
fn value<'a>(xml: &'a str, element: &str) -> Result<&'a str> {
    let inner = xml.split_once(&format!("<{element}>")).map(|x| x.1);
    let inner = inner.and_then(|x| x.split_once(&format!("</{element}>")));
    inner.map(|x| x.0).ok_or(format!("there is no <{element}>"))
}

/// Puts another value into the first element of this name.
fn with(xml: &str, element: &str, new: &str) -> Result<String> {
    let old = value(xml, element)?;
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    Ok(xml.replacen(
        &format!("{open}{old}{close}"),
        &format!("{open}{new}{close}"),
        1,
    ))
}

/// Puts an element before the first `tag`.
fn before(xml: &str, tag: &str, element: &str) -> Result<String> {
    match xml.contains(tag) {
        true => Ok(xml.replacen(tag, &format!("{element}{tag}"), 1)),
        false => Err(format!("the sample has no {tag}")),
    }
}

/// A trace for Twitter, where a checkout lacks its own: the numbers of rows in an order without a pattern that a cache could like.
fn trace(rows: u64) -> String {
    // 7919 is prime and divides neither number of rows.
    let numbers = (0..TRACE).map(|i| 1 + i * 7919 % rows);
    numbers.map(|n| format!("{n}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "<parameters><url>u</url><username>a</username><password>p</password><isolation>TRANSACTION_SERIALIZABLE</isolation>\
        <scalefactor>1</scalefactor><tracefile>no/such/file</tracefile><tracefile2>none</tracefile2><terminals>1</terminals>\
        <works><work><time>60</time><rate>100</rate><weights>1,99</weights></work></works></parameters>";

    fn benchmark(name: &str) -> Benchmark {
        let (name, scale) = *NAMES.iter().find(|n| n.0 == name).unwrap();
        Benchmark {
            name,
            scale,
            sample: SAMPLE.into(),
            home: "/".into(),
            java: "java".into(),
        }
    }

    #[test]
    fn the_sample_keeps_what_is_not_ours() {
        let directory = std::env::temp_dir();
        let at = Place {
            port: 5433,
            directory: &directory,
            terminals: 8,
            seconds: 15,
        };
        let xml = benchmark("voter")
            .configuration(&at, "repeatable read")
            .unwrap();
        for part in [
            "127.0.0.1:5433/canon?",
            "<isolation>TRANSACTION_REPEATABLE_READ</isolation>",
            "<terminals>8</terminals>",
            "<time>15</time><rate>unlimited</rate><weights>1,99</weights><warmup>5</warmup></work>",
            "<tracefile>no/such/file</tracefile>",
            "<retries>100000</retries></parameters>",
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
        let mut other = benchmark("voter");
        other.sample = SAMPLE.replace("terminals", "clients");
        assert!(other.configuration(&at, "serializable").is_err());
    }

    #[test]
    fn twitter_gets_a_trace_where_it_has_none() {
        let directory = std::env::temp_dir().join(format!("xtask-twitter-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = Place {
            port: 5433,
            directory: &directory,
            terminals: 8,
            seconds: 15,
        };
        let xml = benchmark("twitter")
            .configuration(&at, READ_COMMITTED)
            .unwrap();
        let file = value(&xml, "tracefile").unwrap();
        let tweets = std::fs::read_to_string(file).unwrap();
        let numbers: Vec<u64> = tweets.lines().map(|l| l.parse().unwrap()).collect();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(numbers.len() as u64, TRACE);
        assert!(numbers.iter().all(|n| (1..=TWITTER.0).contains(n)));
    }

    #[test]
    fn a_sample_that_is_read_committed_already_runs_once() {
        let mut one = benchmark("tatp");
        assert_eq!(one.levels(), [READ_COMMITTED, "serializable"]);
        one.sample = SAMPLE.replace("SERIALIZABLE", "READ_COMMITTED");
        assert_eq!(one.levels(), [READ_COMMITTED]);
    }

    #[test]
    fn what_was_rolled_back_is_not_throughput() {
        let summary = serde_json::json!({
            "Latency Distribution": {"99th Percentile Latency (microseconds)": 12_500},
            "Throughput (requests/second)": 1000.0,
        });
        let of = |n: u32| serde_json::json!({"HISTOGRAM": {"A": n}, "NUM_SAMPLES": n});
        let histograms = serde_json::json!({
            "completed": of(800), "aborted": of(160), "unexpected": of(40), "rejected": of(80),
        });
        let said = "[WARN ] SQLException occurred during [A] and will not be retried... sql state [40P01], error code [0].\n\
                    [WARN ] SQLException occurred during [B] and will not be retried... sql state [40P01], error code [0].\n";
        let found = figures(&summary, &histograms, said).unwrap();
        assert_eq!((found.tps, found.p99_ms), (800.0, 12.5));
        assert_eq!(found.rolled_back, Some(0.2));
        assert_eq!((found.retried, found.errors), (0.1, 0.05));
        assert_eq!(found.states, BTreeMap::from([("40P01".to_owned(), 2)]));
        let none = serde_json::json!({"completed": of(0), "aborted": of(5), "unexpected": of(0), "rejected": of(0)});
        assert!(figures(&summary, &none, "").is_err());
        assert!(figures(&serde_json::json!({}), &histograms, "").is_err());
    }
}
