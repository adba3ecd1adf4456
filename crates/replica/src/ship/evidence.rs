//! Whether a node that says it is ahead of a primary has shown it: headers of groups in, a verdict out.
//!
//! ```text
//! primary   … | A |                                 ends at P, with group A
//! node      … | A | B | …                           shows A and B: A is the same there, and B's chain continues A
//! ```
//! A primary that has lost log must not serve, so a claim stops it. The bare word of a node could be another history's: of a second copy of one
//! directory that wrote on. A claim is believed when the node's log holds the primary's last group, checksum for checksum, and goes on
//! behind it in the primary's own term.
//!
//! | the node's log | is believed when |
//! |---|---|
//! | goes on behind the primary's end | the group there is the primary's own and the next one continues it |
//! | begins above the primary's end | its first group continues its segment, and a checkpoint of this cluster stands below it |
//! | is a checkpoint alone | the checkpoint is of this cluster and lies above the primary's end |
//!
//! In the last two rows nothing of the primary's own is left to be compared. They are believed all the same: to serve while a reachable node holds
//! what was acknowledged is the greater harm. So is the first where the primary
//! knows its own end from a checkpoint only, and its log ends before that.
//!
//! Left out on purpose: proof against a node that has the cluster's secret and makes up a log. A checksum is no signature, and such a node
//! can depose a primary anyway.

use super::history::term_at;
use super::standing::Ours;
use base::Position;
use wal::GroupHeader;
use wal::around::{Around, Header, checkpoint_header};
use wal::segment::{SEGMENT_HEADER, SegmentHeader};

/// Why a claim is not believed.
pub type Unproven = &'static str;

/// It was asked, and time has passed.
pub const NOT_SHOWN: Unproven = "it has not shown what it holds";

/// Whether two headers are of the same group, wherever it stands.
fn same(a: &GroupHeader, b: &GroupHeader) -> bool {
    let content = |h: &GroupHeader| {
        let ids = (h.count, h.stream, h.term, h.first, h.last, h.published);
        (ids, h.heads_len, h.data_len, h.heads_crc, h.data_crc)
    };
    content(a) == content(b)
}

/// A group's header whose checksum holds, and that checksum.
struct Checked {
    group: GroupHeader,
    crc: u32,
}

fn group(cluster: u128, bytes: &Header) -> Result<Checked, Unproven> {
    let (group, crc) = GroupHeader::decode(bytes)?;
    match group.stream == cluster {
        true => Ok(Checked { group, crc }),
        false => Err("the group is of another cluster"),
    }
}

/// Whether what a node has `shown` of its log around `end` proves that it holds more of this history than a primary, where nothing is left above `end`.
/// `own`: what the primary itself holds there.
pub fn proven(
    ours: Ours<'_>,
    cluster: u128,
    end: Position,
    own: &Around,
    shown: &Around,
) -> Result<(), Unproven> {
    let checkpoint = |from: Position| {
        let bytes = shown.checkpoint.as_ref();
        let bytes = bytes.ok_or("it shows no group that ends where this log ends")?;
        match checkpoint_header(bytes)? {
            (of, _) if of != cluster => Err("the checkpoint is of another cluster"),
            (_, start) if start < from => Err("its log begins behind its checkpoint"),
            _ => Ok(()),
        }
    };
    let Some(next) = &shown.next else {
        return match shown.at {
            None => checkpoint(end.next()),
            Some(_) => Err("it shows no group above the end of this log"),
        };
    };
    let next = group(cluster, next)?;
    let n = &next.group;
    if n.last <= end {
        return Err("the next group is not above the end of this log");
    }
    let term = term_at(ours.terms, n.first.max(end.next()));
    if n.term != term {
        return Err("the next group is of another term");
    }
    let mine = own.at.as_ref().map(|b| group(cluster, b)).transpose()?;
    let at = shown.at.as_ref().map(|b| group(cluster, b)).transpose()?;
    if let Some(at) = &at {
        if at.group.last > end || at.group.last >= n.first {
            return Err("the two groups do not follow each other");
        }
        if at.group.term > n.term {
            return Err("the term falls from one group to the next");
        }
        let other = "the group at the end of this log is another one there";
        match mine.as_ref().map(|m| &m.group) {
            Some(m) if m.last > at.group.last => return Err(other),
            Some(m) if m.last == at.group.last && !same(m, &at.group) => return Err(other),
            // Or this node knows its end from a checkpoint, and its log ends before that.
            _ => {}
        }
    }
    if n.offset > SEGMENT_HEADER {
        // Without the group before, nothing says what it continues.
        let at = at.ok_or("it does not show what the next group continues")?;
        let g = &at.group;
        let place = (g.segment, g.offset + g.len(), at.crc);
        return match place == (n.segment, n.offset, n.chain) {
            true => Ok(()),
            false => Err("the next group does not continue the one before"),
        };
    }
    let segment = shown.segment.as_ref();
    let segment = segment.ok_or("it does not show what the next group continues")?;
    let (s, crc) = SegmentHeader::decode(segment)?;
    if (s.stream, s.number, crc) != (cluster, n.segment, n.chain) || s.after >= n.first {
        return Err("the next group does not continue its segment");
    }
    match (&at, &mine) {
        (Some(at), _) if s.after == at.group.last => Ok(()),
        (Some(_), _) => Err("the segment does not continue the group before"),
        (None, _) if s.after > end => checkpoint(s.after),
        (None, Some(m)) if s.after < m.group.last => {
            Err("its log begins elsewhere than where this one ends")
        }
        (None, _) => checkpoint(s.after),
    }
}
