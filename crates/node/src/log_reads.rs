//! What a primary reads for a replica, off the connection's thread: where the log stands, groups from memory, segments or older log, checkpoints.
//!
//! Left out on purpose: where older log is kept ([`OlderLog`]).

use base::{Error, Position, Result, SqlState};
use replica::ship::Facts;
use replica::ship::sender::Event;
use std::sync::Arc;
use wal::{Around, CheckpointReader, LogReader};

use crate::errors::failed;
use crate::node::Node;
use crate::shipping::Next;

/// Log that the directory does not have any more: an archive.
pub trait OlderLog: Send + Sync {
    /// Position after which log can be had, from here and then from the directory; none when that does not help.
    fn reaches_back_to(&self) -> Option<Position>;

    /// A reader of the log after `from`.
    fn read(&self, from: Position) -> wal::Result<LogReader>;

    /// Whatever reads from here, or before, is filled anew instead.
    fn cannot_read(&self, at: Position, why: &str);
}

type Older<'a> = Option<&'a dyn OlderLog>;

/// What a read gives back.
pub(crate) enum Read {
    Log(Event, Option<Box<LogReader>>),
    Checkpoint(Event, Arc<CheckpointReader>),
    Around(Box<Around>),
}

fn disk(e: wal::Error) -> Error {
    let code = match e.is_retryable() {
        true => SqlState::DISK_FULL,
        false => SqlState::IO_ERROR,
    };
    Error::new(code, e.to_string())
}

/// What is wrong with the archive; what `wal` would say is meant for a data directory.
fn words(e: &wal::Error) -> String {
    match e {
        wal::Error::Corrupt {
            file,
            offset,
            reason,
        } => format!("{} is damaged at offset {offset}: {reason}", file.display()),
        e => e.to_string(),
    }
}

impl Node {
    /// What this primary is, for a replica that introduces itself.
    pub fn facts(&self, older: Older<'_>) -> Result<Facts> {
        let terms = self.terms();
        let own = self.dir().log().reaches_back_to().map_err(failed)?;
        let own = own.unwrap_or(Position::MAX);
        let archived = older.and_then(OlderLog::reaches_back_to);
        Ok(Facts {
            cluster: self.cluster(),
            term: self.term(),
            terms,
            lives: self.dir().lives().map_err(failed)?,
            last: self.marks().flushed.get(),
            reaches_back_to: archived.map_or(own, |a| a.min(own)),
            deposed: self.is_deposed(),
        })
    }
}

/// Groups after `from`, about so many bytes, from memory, from the segments, or from the archive.
pub(crate) fn read_log(
    node: &Node,
    archive: Older<'_>,
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
        let next = match reader.next_group() {
            // The directory has let it go since the last look.
            Err(wal::Error::Missing { .. }) if groups.is_empty() => {
                return read_archive(archive, None, from, bytes);
            }
            Err(wal::Error::Missing { .. }) => break reader.last(),
            next => next.map_err(disk)?,
        };
        match next {
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
    archive: Older<'_>,
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
fn read_archive(
    archive: Older<'_>,
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
        None => archive.read(from).map(Box::new),
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
pub(crate) fn open_checkpoint(node: &Node) -> Result<Read> {
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
