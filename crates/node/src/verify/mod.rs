//! `canon verify`: a stopped directory, a copy of one, or an archive, read whole and held against itself.
//!
//! ```text
//! the small files ─ every segment, every checkpoint, what was set aside ─ a recovery into memory ─ every row against its table
//! ```
//! All of it runs over an [`Overlay`]: the code that would start a node looks at the files, does what it would do, and nothing of it happens.
//! So what is found is what a start would find, and beyond that all that a start takes on trust or never reads: superseded
//! checkpoints, log below the newest one, the groups' terms, constraints.
//!
//! A checkpoint and its log are brought together as at a start; where that is refused the rows cannot be looked at, and the report says so.
//!
//! **Repair** ([`repair`]) takes away only what nothing is lost with: damaged files that a whole checkpoint or a whole log has made superfluous.
//! It does so in memory first. Only if what remains is found whole, and reaches as far as before, it does the same on the disk; and there
//! the files are moved into the folder `damaged`, not removed.
//!
//! Left out on purpose: what only a cluster can tell, such as commits that are missing here and acknowledged elsewhere.

mod archive;
mod repair;

pub use archive::verify_archive;
pub use repair::repair;

use crate::reach;
use crate::recovery::Recovery;
use crate::sequences::Sequences;
use crate::start_check::{self, End, Verdict};
use base::Position;
use env::{Disk, Env, Overlay};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use txn::{RuleCompiler, verify_rows};
use wal::anchor::ANCHOR_FILE;
use wal::aside::{self, AsideGroups};
use wal::verify::{Finding, LogFacts, Wanted, verify_checkpoint, verify_log};
use wal::{DataDir, DirOptions, Error, Progress, Recovered, SegmentSource};

/// Most faults of rows that are written down, of all tables together; the rest is counted.
const MOST_FAULTS: usize = 1000;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files that are wrong, and where.
    pub damage: Vec<Finding>,
    /// Rows that are wrong: table, row, what.
    pub faults: Vec<txn::RowFault>,
    /// Further faults of rows.
    pub more_faults: u64,
    /// What is there, in words.
    pub facts: Vec<String>,
    /// The last position that can be read.
    pub last: Position,
    pub cluster: u128,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.faults.is_empty()
    }

    fn add(&mut self, f: Finding) {
        if !self.damage.contains(&f) {
            self.damage.push(f);
        }
    }
}

/// How it is done.
pub struct Options<'a> {
    pub env: Env,
    /// Compiles CHECK constraints; without it tables that have some are not looked at.
    pub compiler: Option<&'a dyn RuleCompiler>,
    /// Told what is being read and how many bytes of it were, now and then.
    pub progress: &'a dyn Fn(&str, u64),
}

/// Reads a data directory whole. An error: it cannot be read at all, or a process works there.
pub fn verify_dir(path: &Path, options: &Options<'_>) -> wal::Result<Report> {
    let over = Overlay::new(options.env.disk.clone());
    verify_over(&over, path, options)
}

fn verify_over(over: &Overlay, path: &Path, options: &Options<'_>) -> wal::Result<Report> {
    let mut report = Report::default();
    let version = path.join("CANON_VERSION");
    if over.read(&version).is_err() {
        return Err(Error::NotOurs {
            path: path.to_owned(),
            reason: "there is no CANON_VERSION here: not a data directory of Canon".into(),
        });
    }
    for place in [path.to_owned(), path.join("wal"), path.join("checkpoint")] {
        let names = over.list(&place).unwrap_or_default();
        for name in names.iter().filter(|n| n.ends_with(".tmp")) {
            let file = place.join(name);
            let fact = format!("{} is half-made; the next start removes it", file.display());
            report.facts.push(fact);
        }
    }
    let has_terms = over.read(&path.join("CANON_TERMS")).is_ok();
    let Some(dir) = open(over, path, options, &mut report)? else {
        return Ok(report);
    };
    report.cluster = dir.cluster();
    let wanted = Wanted {
        stream: dir.cluster(),
        terms: match has_terms {
            true => dir.terms(),
            false => Vec::new(),
        },
        finished: false,
    };
    let log: Arc<dyn SegmentSource> = dir.log().clone();
    let facts = read_log("the log", &log, &wanted, options, &mut report);
    report.last = facts.last;
    if let Some(cut) = &facts.cut {
        report.facts.push(format!(
            "{cut} (the normal end of a crash; the next start clears it)"
        ));
    }
    let checkpoints = path.join("checkpoint");
    for name in over.list(&checkpoints).unwrap_or_default() {
        if name.ends_with(".ckpt") {
            read_checkpoint(
                over,
                &checkpoints.join(&name),
                dir.cluster(),
                options,
                &mut report,
            );
        }
    }
    set_aside(over, path, dir.cluster(), options, &mut report);
    state(&dir, &mut report);
    rows(&dir, options, &mut report);
    Ok(report)
}

/// Opens the directory; small files that are damaged are told of and left out. None: nothing more can be read.
fn open(
    over: &Overlay,
    path: &Path,
    options: &Options<'_>,
    report: &mut Report,
) -> wal::Result<Option<DataDir>> {
    let env = options.env.clone().with_disk(Arc::new(over.clone()));
    for _ in 0..16 {
        match DataDir::open(&env, path, DirOptions::default()) {
            Ok(dir) => return Ok(Some(dir)),
            Err(e @ Error::Locked { .. }) => return Err(e),
            Err(e) => {
                let f = Finding::of(&e, path);
                let small = matches!(&e, Error::Corrupt { file, .. }
                    if file.parent() == Some(path) && !file.ends_with("CANON_VERSION"));
                let file = f.file.clone();
                report.add(f);
                if !small || over.remove(&file).is_err() {
                    break;
                }
            }
        }
    }
    report
        .facts
        .push("nothing behind that could be read".into());
    Ok(None)
}

fn read_log(
    what: &str,
    log: &Arc<dyn SegmentSource>,
    wanted: &Wanted,
    options: &Options<'_>,
    report: &mut Report,
) -> LogFacts {
    let mut found = Vec::new();
    let progress = &mut |n| (options.progress)(what, n);
    let facts = verify_log(log, wanted, progress, &mut found);
    found.into_iter().for_each(|f| report.add(f));
    report.facts.push(format!(
        "{what}: {} segments, {} groups of {} commits, {} bytes, positions above {} up to {}",
        facts.segments, facts.groups, facts.commits, facts.bytes, facts.after, facts.last
    ));
    let terms: Vec<String> = facts
        .terms
        .iter()
        .map(|(t, p)| format!("{t} from {p}"))
        .collect();
    if !terms.is_empty() {
        report
            .facts
            .push(format!("{what}: terms {}", terms.join(", ")));
    }
    facts
}

fn read_checkpoint(
    disk: &dyn Disk,
    path: &Path,
    cluster: u128,
    options: &Options<'_>,
    report: &mut Report,
) -> Option<wal::Manifest> {
    let mut found = Vec::new();
    let progress = &mut |n| (options.progress)("checkpoints", n);
    let manifest = verify_checkpoint(disk, path, cluster, progress, &mut found);
    found.into_iter().for_each(|f| report.add(f));
    let m = manifest?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    report.facts.push(format!(
        "checkpoint {name}: {} rows, needs the log above {}, ends at {}",
        m.rows, m.start, m.end
    ));
    manifest
}

fn set_aside(
    disk: &Overlay,
    path: &Path,
    cluster: u128,
    options: &Options<'_>,
    report: &mut Report,
) {
    let all = match aside::list(disk, path) {
        Ok(all) => all,
        Err(e) => return report.add(Finding::of(&e, path)),
    };
    for a in all {
        if let Some(file) = &a.log {
            let read = || {
                let mut groups = AsideGroups::open(disk, file)?;
                while let Some(g) = groups.next_group()? {
                    (options.progress)("what was set aside", g.header().len());
                }
                Ok(())
            };
            if let Err(e) = read() {
                report.add(Finding::of(&e, file));
            }
        }
        for file in [&a.base, &a.checkpoint].into_iter().flatten() {
            read_checkpoint(disk, file, cluster, options, report);
        }
        report.facts.push(format!("set aside: {}", a.name));
    }
}

/// What kind of node it is.
fn state(dir: &DataDir, report: &mut Report) {
    let known = dir.terms().last().map_or(1, |t| t.0);
    report
        .facts
        .push(format!("cluster {:032x}, term {known}", dir.cluster()));
    if let Ok(heard) = dir.heard_term()
        && heard > known
    {
        report
            .facts
            .push(format!("it has heard of term {heard}: it leads no more"));
    }
    if let Ok(Some(node)) = dir.sealed_for() {
        report.facts.push(format!("it has handed over to {node}"));
    }
    match dir.diverged() {
        Ok(Some((term, at))) => report.facts.push(format!(
            "what is above {at} is not in the history of term {term}: it waits for a copy"
        )),
        Ok(None) => {}
        Err(e) => report.add(Finding::of(&e, dir.path())),
    }
}

/// Recovers into memory and holds the rows against their tables.
fn rows(dir: &DataDir, options: &Options<'_>, report: &mut Report) {
    let store = Arc::new(Store::default());
    let workers = options.env.spawn.parallelism().max(1);
    let recovery = Recovery::new(store, Arc::new(Sequences::default()), workers);
    let recovered = wal::recover(dir, &recovery, workers, &Progress::default());
    let catalog = recovered.and_then(|r| {
        report.last = r.last;
        reaches_anchor(dir, &r, report);
        recovery.rows_alone(r.last).map_err(Error::Apply)
    });
    let catalog = match catalog {
        Ok(catalog) => catalog,
        Err(e) => {
            let f = Finding::of(&e, dir.path());
            let known = report.damage.iter().any(|d| d.file == f.file);
            if !known {
                report.add(f);
            }
            let fact = "checkpoint and log cannot be brought together: rows were not looked at";
            report.facts.push(fact.into());
            return;
        }
    };
    let mut tables: Vec<_> = catalog.tables.values().collect();
    tables.sort_by_key(|t| t.table.def.id);
    let mut all = 0;
    for t in &tables {
        let mut faults = Vec::new();
        let mut each = |f| faults.push(f);
        let looked = verify_rows(&catalog, t, options.compiler, &mut each);
        match looked {
            Ok(rows) => {
                all += rows;
                (options.progress)("rows", rows);
            }
            Err(e) => faults.push(txn::RowFault {
                table: t.name().to_owned(),
                row: String::new(),
                what: format!("its constraints cannot be asked: {}", e.fields().message),
            }),
        }
        for f in faults {
            match report.faults.len() < MOST_FAULTS {
                true => report.faults.push(f),
                false => report.more_faults += 1,
            }
        }
    }
    report.facts.push(format!(
        "{all} rows of {} tables at position {}",
        tables.len(),
        report.last
    ));
}

/// Whether the log reaches what its anchor says.
fn reaches_anchor(dir: &DataDir, recovered: &Recovered, report: &mut Report) {
    let file = dir.path().join(ANCHOR_FILE);
    let Some(anchor) = dir.anchor() else {
        let fact = "no anchor: how far the log had reached is not known; the first start makes one";
        return report.facts.push(fact.into());
    };
    let found = match reach::found(dir) {
        Ok(found) => found,
        Err(e) => return report.add(Finding::new(&file, 0, e.fields().message.clone())),
    };
    let end = End::of(recovered);
    if let Verdict::Refused(what) = start_check::check(Some(&anchor), &found, end, None) {
        let what = format!(
            "by this anchor the log had reached {}, but {what}",
            anchor.position
        );
        report.add(Finding::new(&file, 0, what));
    }
}

/// A path below another one, for a person.
pub fn below(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
