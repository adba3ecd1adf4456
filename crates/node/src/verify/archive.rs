//! An archive, read whole: the log and the checkpoints of each term, and whether a directory can be made of the newest.
//!
//! The archive holds finished segments only, so each must be whole. What a directory made of a term's newest checkpoint and its log would
//! be, is tried over an [`Overlay`]: with the same eyes as any other directory. The lines that its `CANON_TERMS` needs are among the facts.

use super::{Options, Report, read_checkpoint, read_log, verify_over};
use base::Position;
use env::{Disk, Overlay};
use std::path::Path;
use std::sync::Arc;
use wal::segment::{LogDir, LogOptions, SegmentName};
use wal::verify::{Finding, Wanted};
use wal::{Error, Manifest, SegmentSource};

/// Where the directory is tried; nothing lies there.
const TRIED: &str = "/tried/out/in/memory";

/// Reads an archive whole: the folder that `archive = "file:///…"` names.
pub fn verify_archive(root: &Path, options: &Options<'_>) -> wal::Result<Report> {
    let over = Overlay::new(options.env.disk.clone());
    let mut report = Report::default();
    let names = over.list(root).map_err(|source| Error::Io {
        op: "listing",
        path: root.to_owned(),
        source,
    })?;
    let clusters = names.iter().filter(|n| n.len() == 32);
    let clusters = clusters.filter_map(|n| Some((n, u128::from_str_radix(n, 16).ok()?)));
    let mut any = false;
    for (name, cluster) in clusters {
        let folder = root.join(name);
        let mut terms = listed(&over, &folder, &mut report);
        terms.retain(|t| t.parse::<u64>().is_ok());
        for (n, term) in terms.iter().enumerate() {
            any = true;
            let newest = n + 1 == terms.len();
            term_of(
                &over,
                &folder.join(term),
                cluster,
                newest,
                options,
                &mut report,
            );
        }
    }
    if !any && report.damage.is_empty() {
        let reason = "there is no cluster's log here: not an archive of Canon".into();
        let path = root.to_owned();
        return Err(Error::NotOurs { path, reason });
    }
    Ok(report)
}

/// What lies in a folder. One that cannot be listed, as of a bucket that refuses that, is a finding: what it holds was not read.
fn listed(over: &Overlay, folder: &Path, report: &mut Report) -> Vec<String> {
    match over.list(folder) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            let (op, path) = ("listing", folder.to_owned());
            report.add(Finding::of(&Error::Io { op, path, source }, folder));
            Vec::new()
        }
    }
}

fn term_of(
    over: &Overlay,
    folder: &Path,
    cluster: u128,
    newest: bool,
    options: &Options<'_>,
    report: &mut Report,
) {
    let what = format!(
        "term {}",
        folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .trim_start_matches('0')
    );
    let disk: Arc<dyn Disk> = Arc::new(over.clone());
    let wal = folder.join("wal");
    let log = match LogDir::open(disk, &wal, cluster, LogOptions::default()) {
        Ok(log) => log,
        Err(e) => return report.add(Finding::of(&e, &wal)),
    };
    let wanted = Wanted {
        stream: cluster,
        terms: Vec::new(),
        finished: true,
    };
    let source: Arc<dyn SegmentSource> = log.clone();
    let facts = read_log(&what, &source, &wanted, options, report);
    report.last = report.last.max(facts.last);
    report.cluster = cluster;
    let checkpoints = folder.join("checkpoint");
    let mut best: Option<(String, Manifest)> = None;
    for name in listed(over, &checkpoints, report) {
        if name.ends_with(".ckpt")
            && let Some(m) =
                read_checkpoint(over, &checkpoints.join(&name), cluster, options, report)
        {
            best = best.filter(|b| b.1.number > m.number).or(Some((name, m)));
        }
    }
    if newest && report.damage.is_empty() {
        let mut segments: Vec<(String, SegmentName)> = log
            .list()
            .unwrap_or_default()
            .into_iter()
            .map(|n| (n.file_name(), n))
            .collect();
        let all = listed(over, &wal, report);
        segments.extend(unfinished(all, segments.last().map(|s| s.1)));
        restorable(
            over, folder, cluster, best, &segments, &what, options, report,
        );
        // What came before the log that is here is nobody's to tell: the first of its terms stands for it.
        for (n, (term, start)) in facts.terms.iter().enumerate() {
            let start = if n == 0 { Position::ZERO } else { *start };
            report.facts.push(format!("CANON_TERMS: {term} {start}"));
        }
    }
}

/// The beginning of the segment behind the finished ones, which a backup has left.
fn unfinished(names: Vec<String>, last: Option<SegmentName>) -> Option<(String, SegmentName)> {
    let mut parts = names.into_iter().filter_map(|n| {
        let name = wal::archive::parse_part(&n)?;
        Some((n, name))
    });
    parts.rfind(|p| last.is_none_or(|l| l.number + 1 == p.1.number))
}

/// Whether a directory of this checkpoint and these segments would start.
#[allow(clippy::too_many_arguments)]
fn restorable(
    over: &Overlay,
    folder: &Path,
    cluster: u128,
    checkpoint: Option<(String, Manifest)>,
    segments: &[(String, SegmentName)],
    what: &str,
    options: &Options<'_>,
    report: &mut Report,
) {
    let root = Path::new(TRIED);
    let made = over.open(&root.join("CANON_VERSION"), env::OpenMode::Truncate);
    let text = format!("canon 1\ncluster {cluster:032x}\n");
    if made
        .and_then(|f| f.write_all_at(text.as_bytes(), 0))
        .is_err()
    {
        return;
    }
    for dir in ["wal", "checkpoint"] {
        _ = over.create_dir_all(&root.join(dir));
    }
    for (object, name) in segments {
        over.link(
            &folder.join("wal").join(object),
            &root.join("wal").join(name.file_name()),
        );
    }
    let start = checkpoint.as_ref().map(|c| c.1.start);
    if let Some((name, _)) = &checkpoint {
        let from = folder.join("checkpoint").join(name);
        over.link(&from, &root.join("checkpoint").join(name));
    }
    match verify_over(over, root, options) {
        Ok(tried) => {
            let whole = tried.damage.is_empty();
            for f in tried.damage {
                let file = folder.join(super::below(&f.file, root));
                report.add(Finding::new(&file, f.offset, f.what));
            }
            report.faults.extend(tried.faults);
            report.more_faults += tried.more_faults;
            if whole {
                let from = match start {
                    Some(p) => format!("a checkpoint that needs the log above {p}"),
                    None => "no checkpoint".into(),
                };
                report.facts.push(format!(
                    "{what}: a directory can be made of {from} and {} segments; it ends at {}",
                    segments.len(),
                    tried.last
                ));
                report
                    .facts
                    .extend(tried.facts.into_iter().filter(|f| f.contains(" rows of ")));
            }
        }
        Err(e) => report.add(Finding::of(&e, folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Env, MemDisk};
    use std::io::{self, ErrorKind};
    use wal::archive::Files;
    use wal::{ArchiveDisk, Objects};

    /// Objects of which one folder is not listed, as in a bucket that refuses it.
    struct Refusing(Files, &'static str);

    impl Refusing {
        fn ask(&self, folder: &str) -> io::Result<()> {
            match folder.ends_with(self.1) {
                true => Err(ErrorKind::PermissionDenied.into()),
                false => Ok(()),
            }
        }
    }

    impl Objects for Refusing {
        fn put(&self, _: &str, _: &[u8]) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }

        fn put_pieces(
            &self,
            _: &str,
            _: u64,
            _: &mut dyn FnMut(u64, u64) -> io::Result<Vec<u8>>,
        ) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }

        fn read(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read(name, buf, offset)
        }

        fn len(&self, name: &str) -> io::Result<u64> {
            self.0.len(name)
        }

        fn list(&self, folder: &str) -> io::Result<Vec<String>> {
            self.ask(folder)?;
            self.0.list(folder)
        }

        fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
            self.ask(folder)?;
            self.0.folders(folder)
        }

        fn remove(&self, _: &str) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }
    }

    /// Nothing is damaged here but what could not be looked at.
    #[test]
    fn what_cannot_be_listed_is_a_finding() {
        let cluster = "000000000000000000000000000000c0";
        for folder in ["checkpoint", "wal", cluster] {
            let files = Files::new(Arc::new(MemDisk::new()), Path::new("/place"));
            let place = format!("{cluster}/00000000000000000001");
            files
                .put(&format!("{place}/checkpoint/other"), b"")
                .unwrap();
            files.put(&format!("{place}/wal/other"), b"").unwrap();
            let root = Path::new("s3://bucket");
            let disk = Arc::new(ArchiveDisk::new(Arc::new(Refusing(files, folder)), root));
            let options = Options {
                env: Env { disk, ..Env::os() },
                compiler: None,
                progress: &|_, _| {},
            };
            let report = verify_archive(root, &options).unwrap();
            let found = report.damage.iter();
            let found = found.filter(|d| d.file.ends_with(folder) && d.what.contains("permission"));
            assert_eq!(found.count(), 1, "{folder}: {:?}", report.damage);
            assert!(!report.is_whole());
        }
    }
}
