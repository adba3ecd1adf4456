//! What a replica asks for again is not sent while its connection is full.
//!
//! A replica that waits for a part of the copy, or for log that it has missed, asks again when nothing comes. Over a slow link the
//! first answer may still be on its way; a second beside it would take this node's memory and the link's time, and is no use. What is
//! not answered here is asked for once more (`replica::ship::Receiver`). The first time that a live replica asks counts in any case: what
//! fills its connection is then what comes behind the gap, which it throws away.
//!
//! Left out on purpose: the log that is sent unasked, which acknowledgements hold back (`replica::ship::Sender`).

use replica::ship::Message;

/// Bytes that wait to be written before live groups are held back.
pub(crate) const HIGH_WATER: usize = 16 << 20;
/// Parts of a copy that are being read.
const PARTS: usize = 8;
/// Reads beside which another of the log is begun.
const READS: usize = 2;

/// Whether this message is to be passed over, when the log is sent unasked (`live`), so many bytes wait to be written, and so many
/// reads are under way.
pub(crate) fn is_too_much(m: &Message, live: bool, pending: usize, reads: usize) -> bool {
    match m {
        Message::Fetch { .. } => pending >= HIGH_WATER || reads >= PARTS,
        Message::Resume { .. } if live => false,
        Message::Resume { .. } => pending >= HIGH_WATER || reads >= READS,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Position;

    #[test]
    fn only_what_is_asked_for_again_is_passed_over() {
        let fetch = Message::Fetch {
            offset: 0,
            bytes: 1,
        };
        let resume = Message::Resume {
            from: Position::ZERO,
        };
        for m in [&fetch, &resume] {
            assert!(!is_too_much(m, false, HIGH_WATER - 1, 1));
            assert!(is_too_much(m, false, HIGH_WATER, 0));
            assert!(is_too_much(m, false, 0, 8));
        }
        assert!(!is_too_much(&resume, true, 2 * HIGH_WATER, 100));
        assert!(!is_too_much(&Message::Seal, false, 2 * HIGH_WATER, 100));
    }
}
