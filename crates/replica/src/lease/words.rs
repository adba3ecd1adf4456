//! What a primary and a replica say to each other about a lease, among the messages of the log (`ship::message`).
//!
//! ```text
//! replica ◀── Offer ──────────────────────────────── primary     it may ask: its acknowledgements are quick
//! replica ─── Ask: life u64, number u64 ───────────▶ primary
//! replica ◀── Granted: term, number, first: u64 ──── primary     it may answer where it has received `first`
//! replica ◀── Wanted ─────────────────────────────── primary     it is to give its lease back
//! replica ─── GivenBack: life u64, number u64 ─────▶ primary     it answers by no lease that it asked for up to this request
//! ```
//! Both ends have to know these words. A replica says when it connects that it does (`canon.leases`), and asks only where a lease was offered. So a build
//! that does not know them never sees one, and its replicas ask for timestamps as before.

use super::Ask;
use base::{MAX_TERM, Position};

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Offer,
    Ask(Ask),
    /// The request of this number is granted.
    Granted {
        term: u64,
        number: u64,
        first: Position,
    },
    Wanted,
    GivenBack(Ask),
}

const OFFER: u8 = 10;
const GRANTED: u8 = 11;
const WANTED: u8 = 12;
const ASK: u8 = 23;
const GIVEN_BACK: u8 = 24;

impl Word {
    /// Appends the bytes of a message of this version.
    pub(crate) fn encode(&self, version: u8, out: &mut Vec<u8>) {
        let mut put = |kind: u8, fields: &[u64]| {
            out.extend_from_slice(&[kind, version]);
            let fields = fields.iter().flat_map(|f| f.to_le_bytes());
            out.extend(fields);
        };
        match *self {
            Word::Offer => put(OFFER, &[]),
            Word::Ask(Ask { life, number }) => put(ASK, &[life, number]),
            Word::Granted {
                term,
                number,
                first,
            } => put(GRANTED, &[term, number, first.as_u64()]),
            Word::Wanted => put(WANTED, &[]),
            Word::GivenBack(Ask { life, number }) => put(GIVEN_BACK, &[life, number]),
        }
    }

    /// Reads all that comes behind the kind and the version.
    pub(crate) fn decode(kind: u8, fields: &[u8]) -> Result<Word, &'static str> {
        let (fields, left) = fields.as_chunks::<8>();
        let fields: Vec<u64> = fields.iter().map(|f| u64::from_le_bytes(*f)).collect();
        match (kind, &fields[..], left) {
            (OFFER, [], []) => Ok(Word::Offer),
            (ASK, &[life, number], []) => Ok(Word::Ask(Ask { life, number })),
            (GRANTED, &[term, number, first], []) if term <= MAX_TERM => Ok(Word::Granted {
                term,
                number,
                first: Position::from_u64(first),
            }),
            (WANTED, [], []) => Ok(Word::Wanted),
            (GIVEN_BACK, &[life, number], []) => Ok(Word::GivenBack(Ask { life, number })),
            (OFFER | ASK | GRANTED | WANTED | GIVEN_BACK, ..) => {
                Err("a word of a lease is malformed")
            }
            _ => Err("the message is of an unknown kind"),
        }
    }
}
