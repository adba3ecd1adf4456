//! What a sender reads, off its thread: where the log stands, groups from memory, segments or the archive, checkpoints.

use super::archive::Archiving;
use base::{Error, Position, Result, SqlState};
use node::{Next, Node};
use replica::ship::Facts;
use replica::ship::sender::Event;
use std::sync::Arc;
use tracing::info;
use wal::{Around, CheckpointReader, LogReader};

/// What a read off this thread gives back.
pub(super) enum Read {
    Log(Event, Option<Box<LogReader>>),
    Checkpoint(Event, Arc<CheckpointReader>),
    Sealed(Position),
    Around(Box<Around>),
    /// It was handed over to another one.
    Taken(String),
    Failed(Error),
}

pub(super) fn disk(e: wal::Error) -> Error {
    let code = match e.is_retryable() {
        true => SqlState::DISK_FULL,
        false => SqlState::IO_ERROR,
    };
    Error::new(code, e.to_string())
}

/// What is wrong with the archive; what `wal` would say is meant for a data directory.
pub(super) fn words(e: &wal::Error) -> String {
    match e {
        wal::Error::Corrupt {
            file,
            offset,
            reason,
        } => format!("{} is damaged at offset {offset}: {reason}", file.display()),
        e => e.to_string(),
    }
}

pub(super) fn facts(node: &Node, deposed: bool, archive: Option<&Archiving>) -> Result<Facts> {
    let terms = node.terms();
    let own = node.dir().log().reaches_back_to().map_err(disk)?;
    let own = own.unwrap_or(Position::MAX);
    let archived = archive.and_then(Archiving::reaches_back_to);
    Ok(Facts {
        cluster: node.cluster(),
        term: node.term(),
        terms,
        lives: node.dir().lives().map_err(disk)?,
        last: node.marks().flushed.get(),
        reaches_back_to: archived.map_or(own, |a| a.min(own)),
        deposed,
    })
}

/// Groups after `from`, about so many bytes, from memory, from the segments, or from the archive.
pub(super) fn read_log(
    node: &Node,
    archive: Option<&Archiving>,
    reader: Option<Box<LogReader>>,
    from: Position,
    bytes: u64,
) -> Result<Read> {
    if let Next::Groups(some) = node.shipping().after(from) {
        let upto = some.last().map_or(from, |g| g.upto);
        let groups = some.iter().map(|g| g.group.clone()).collect();
        return Ok(Read::Log(Event::LogRead { from, groups, upto }, None));
    }
    // What is flushed now stands before the limit that is read next.
    let flushed = node.marks().flushed.get();
    let reader = match reader.filter(|r| r.last() == from) {
        Some(r) if !r.is_following() => return read_archive(archive, Some(r), from, bytes),
        Some(mut r) => {
            if let Some(limit) = node.shipping().limit() {
                r.raise_limit(limit);
            }
            Some(r)
        }
        None => match node.shipping().limit() {
            None => return read_recovered(node, archive, from, bytes, flushed),
            Some(limit) => {
                let log = node.dir().log().clone();
                match LogReader::follow(log, node.cluster(), from, limit) {
                    Ok(r) => Some(Box::new(r)),
                    Err(wal::Error::Missing { .. }) => {
                        return read_archive(archive, None, from, bytes);
                    }
                    Err(e) => return Err(disk(e)),
                }
            }
        },
    };
    let Some(mut reader) = reader else {
        let (groups, upto) = (Vec::new(), flushed);
        return Ok(Read::Log(Event::LogRead { from, groups, upto }, None));
    };
    let (mut groups, mut taken) = (Vec::new(), 0);
    let upto = loop {
        match reader.next_group().map_err(disk)? {
            Some(g) => {
                taken += g.as_bytes().len() as u64;
                let last = g.header().last;
                groups.push(Arc::new(g));
                if taken >= bytes {
                    break last;
                }
            }
            None => break reader.last().max(flushed),
        }
    };
    Ok(Read::Log(
        Event::LogRead { from, groups, upto },
        Some(reader),
    ))
}

/// The same while no segment was begun since the start: the last one held no group, say, and was removed. What the start found lies in
/// older segments. Nothing above `flushed` is taken: the writer may have begun.
fn read_recovered(
    node: &Node,
    archive: Option<&Archiving>,
    from: Position,
    bytes: u64,
    flushed: Position,
) -> Result<Read> {
    let mut reader = match LogReader::open(node.dir().log().clone(), node.cluster(), from) {
        Ok(r) => r,
        Err(wal::Error::Missing { .. }) => return read_archive(archive, None, from, bytes),
        Err(e) => return Err(disk(e)),
    };
    let (mut groups, mut taken, mut upto) = (Vec::new(), 0, flushed.max(from));
    while let Some(g) = reader.next_group().map_err(disk)? {
        let last = g.header().last;
        if last > flushed {
            break;
        }
        taken += g.as_bytes().len() as u64;
        groups.push(Arc::new(g));
        if taken >= bytes {
            upto = last;
            break;
        }
    }
    Ok(Read::Log(Event::LogRead { from, groups, upto }, None))
}

/// The same from the archive. Whatever is wrong with it, a replica can still be filled anew.
pub(super) fn read_archive(
    archive: Option<&Archiving>,
    reader: Option<Box<LogReader>>,
    from: Position,
    bytes: u64,
) -> Result<Read> {
    let missing = || Ok(Read::Log(Event::LogMissing, None));
    let Some(archive) = archive else {
        return missing();
    };
    let opened = match reader {
        Some(r) => Ok(r),
        None => {
            info!(%from, "reading log from the archive");
            archive.read(from).map(Box::new)
        }
    };
    let mut reader = match opened {
        Ok(r) => r,
        Err(e) => {
            archive.cannot_read(from, &words(&e));
            return missing();
        }
    };
    let (mut groups, mut taken, mut last) = (Vec::new(), 0, from);
    loop {
        match reader.next_group() {
            Ok(Some(g)) => {
                taken += g.as_bytes().len() as u64;
                last = g.header().last;
                groups.push(Arc::new(g));
                if taken >= bytes {
                    let read = Event::LogRead {
                        from,
                        groups,
                        upto: last,
                    };
                    return Ok(Read::Log(read, Some(reader)));
                }
            }
            // Here the directory goes on.
            Ok(None) if last > from => {
                let read = Event::LogRead {
                    from,
                    groups,
                    upto: last,
                };
                return Ok(Read::Log(read, None));
            }
            Ok(None) => {
                archive.cannot_read(from, "it ends there, before the directory begins");
                return missing();
            }
            Err(e) => {
                archive.cannot_read(last, &words(&e));
                return missing();
            }
        }
    }
}

/// The newest checkpoint; one is written if there is none.
pub(super) fn open_checkpoint(node: &Node) -> Result<Read> {
    let mut found = node.dir().latest_checkpoint().map_err(disk)?;
    if found.is_none() {
        node.checkpoint()?;
        found = node.dir().latest_checkpoint().map_err(disk)?;
    }
    let c = found.ok_or_else(|| Error::internal("no checkpoint was written"))?;
    let m = *c.manifest();
    let opened = Event::CheckpointOpened {
        number: m.number,
        bytes: c.len(),
        start: m.start,
    };
    Ok(Read::Checkpoint(opened, Arc::new(c)))
}
