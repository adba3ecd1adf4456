//! Repair, where nothing is lost.
//!
//! | damaged | taken away if |
//! |---|---|
//! | a checkpoint that is not the newest | the newest is whole |
//! | the newest checkpoint | an older whole one, or the log from its beginning, tells all the same |
//! | segments, or holes between them | the newest checkpoint needs only log behind them |
//! | half-made files, a torn end, an unfinished switch | always: a start does so |
//!
//! Nothing else: what holds the only copy of a commit is never touched, and rows are never changed. Whether something is superfluous is not
//! reasoned out but tried, in memory: the rest must be found whole, and reach at least as far as all that could be read before.

use super::{Options, Report, verify_over};
use base::Position;
use env::{Disk, Overlay};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{Anchor, DataDir, DirOptions, Error, SegmentName};

/// What was done, in words, and what is found afterwards. The report is the one before when nothing could be done.
pub fn repair(
    path: &Path,
    found: &Report,
    options: &Options<'_>,
) -> wal::Result<(Vec<String>, Report)> {
    let mut done = Vec::new();
    let gone = superfluous(path, found, options)?;
    let disk = &*options.env.disk;
    if !gone.is_empty() {
        // Its lock is held, so that no start comes between; half-made files go as at a start.
        let dir = DataDir::open(&options.env, path, DirOptions::default())?;
        // Before the file goes: a crash between leaves a directory that is refused, as before.
        lower_anchor(&dir, &gone)?;
        let aside = path.join("damaged");
        disk.create_dir_all(&aside)
            .map_err(|e| io("creation", &aside, e))?;
        disk.sync_dir(path).map_err(|e| io("sync", path, e))?;
        for file in &gone {
            let to = aside.join(file.file_name().unwrap_or_default());
            let parent = file.parent().unwrap_or(path);
            disk.rename(file, &to)
                .map_err(|e| io("renaming", file, e))?;
            for d in [&*aside, parent] {
                disk.sync_dir(d).map_err(|e| io("sync", d, e))?;
            }
            done.push(format!(
                "{} was superfluous: moved to {}",
                file.display(),
                to.display()
            ));
        }
    }
    // What a start does, too: half-made files go, what was decided is finished.
    let half_made = found.facts.iter().filter(|f| f.contains("is half-made"));
    let half_made: Vec<String> = half_made.cloned().collect();
    if !half_made.is_empty() && (found.is_whole() || !gone.is_empty()) {
        drop(DataDir::open(&options.env, path, DirOptions::default())?);
        done.extend(half_made.into_iter().map(|f| {
            f.replace(
                "is half-made; the next start removes it",
                "was half-made: removed",
            )
        }));
    }
    let report = match done.is_empty() {
        true => found.clone(),
        false => super::verify_dir(path, options)?,
    };
    Ok((done, report))
}

/// The anchor asks for no checkpoint that is taken away; all else that it asks for stays.
fn lower_anchor(dir: &DataDir, gone: &[PathBuf]) -> wal::Result<()> {
    let numbers = dir.checkpoint_numbers()?;
    let left = numbers
        .into_iter()
        .filter(|n| !gone.contains(&dir.checkpoint_path(*n)));
    let newest = left.max().unwrap_or(0);
    match dir.anchor() {
        Some(old) if old.checkpoint > newest => dir.set_anchor(Anchor {
            checkpoint: newest,
            ..old
        }),
        _ => Ok(()),
    }
}

fn io(op: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        op,
        path: path.to_owned(),
        source,
    }
}

/// Damaged files without which the directory is whole, and reaches as far; none when there are no such.
fn superfluous(path: &Path, found: &Report, options: &Options<'_>) -> wal::Result<Vec<PathBuf>> {
    if found.damage.is_empty() {
        return Ok(vec![]);
    }
    let disk = &options.env.disk;
    let (wal, checkpoints) = (path.join("wal"), path.join("checkpoint"));
    let mut gone: Vec<PathBuf> = Vec::new();
    let mut upto: Option<u64> = None;
    for f in &found.damage {
        let name = f.file.file_name().unwrap_or_default().to_string_lossy();
        match SegmentName::parse(&name) {
            Some(s) if f.file.parent() == Some(&wal) => {
                // A segment that is told of because those before it are missing is itself good.
                let hole = f.what.contains("which should come before it");
                let last = if hole {
                    s.number.saturating_sub(1)
                } else {
                    s.number
                };
                upto = upto.max(Some(last));
            }
            _ if f.file.parent() == Some(&checkpoints)
                && disk.open(&f.file, env::OpenMode::Read).is_ok() =>
            {
                if !gone.contains(&f.file) {
                    gone.push(f.file.clone());
                }
            }
            _ => return Ok(vec![]),
        }
    }
    if let Some(upto) = upto {
        let names = disk.list(&wal).map_err(|e| io("listing", &wal, e))?;
        let names: Vec<_> = names.iter().filter_map(|n| SegmentName::parse(n)).collect();
        // Nothing tells how far the last one went, so nothing can be shown to have all of it.
        if names.iter().map(|s| s.number).max() <= Some(upto) {
            return Ok(vec![]);
        }
        let before = names.iter().filter(|s| s.number <= upto);
        gone.extend(before.map(|s| wal.join(s.file_name())));
    }
    let over = Overlay::new(disk.clone());
    let env = options.env.clone().with_disk(Arc::new(over.clone()));
    lower_anchor(&DataDir::open(&env, path, DirOptions::default())?, &gone)?;
    for file in &gone {
        over.remove(file).map_err(|e| io("removal", file, e))?;
    }
    let left = verify_over(&over, path, options)?;
    let reaches = left.last >= found.last && left.last > Position::ZERO;
    Ok(match left.is_whole() && reaches {
        true => gone,
        false => vec![],
    })
}
