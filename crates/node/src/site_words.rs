//! What a site and its primary say to each other over the connection of `CERTIFY_COMMITS`.
//!
//! | message | bytes, little-endian |
//! |---|---|
//! | certify | kind u8 (2), number u64, term u64, 1 u8 and after u64 if it was sent before, else 0 u8; durability u8, [`base::Candidate`] |
//! | draw | kind u8 (3), sequence u32, term u64, count u32 |
//! | I am there | kind u8 (1) |
//! | committed | kind u8 (2), number u64, position u64 |
//! | refused | kind u8 (3), number u64, position u64, SQLSTATE, then text: message, detail, hint, schema, table, constraint |
//! | later | kind u8 (4), number u64: nothing was decided, ask again |
//! | numbers | kind u8 (5), sequence u32, first i64, increment i64, count u32, position u64 |
//! | no numbers | kind u8 (6), sequence u32, then SQLSTATE and texts as above |
//! | draw later | kind u8 (7), sequence u32: nothing was decided, ask again |
//! | text | length u32, UTF-8 |
//!
//! The position of a refusal is one at which what won is installed.
//!
//! Left out on purpose: versions of this protocol; the cluster's nodes are of one release while sites write (docs/sites.md).

use crate::ranges::Numbers;
use base::{Error, Oid, Position, SqlState};
use txn::Durability;

const HERE: u8 = 1;
const CERTIFY: u8 = 2;
const DRAW: u8 = 3;
const COMMITTED: u8 = 2;
const REFUSED: u8 = 3;
const LATER: u8 = 4;
const NUMBERS: u8 = 5;
const NO_NUMBERS: u8 = 6;
const DRAW_LATER: u8 = 7;

/// A candidate that asks for its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certify {
    pub number: u64,
    /// The term of the history that the site follows.
    pub term: u64,
    /// The primary may have had it before, and can have committed it above this position only.
    pub again: Option<Position>,
    pub durability: Durability,
    pub candidate: Vec<u8>,
}

/// A question for numbers of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub sequence: Oid,
    /// The term of the history that the site follows.
    pub term: u64,
    /// At most so many.
    pub count: u32,
}

/// What a site asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Certify(Certify),
    Draw(Draw),
}

/// What a primary says.
#[derive(Clone, Debug)]
pub enum Answer {
    IAm,
    Committed(u64, Position),
    Refused(u64, Position, Error),
    Later(u64),
    Numbers(Oid, Numbers),
    NoNumbers(Oid, Error),
    DrawLater(Oid),
}

const DURABILITIES: [Durability; 5] = [
    Durability::Off,
    Durability::Local,
    Durability::RemoteWrite,
    Durability::On,
    Durability::RemoteApply,
];

impl Certify {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(CERTIFY);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        out.push(u8::from(self.again.is_some()));
        if let Some(after) = self.again {
            out.extend_from_slice(&after.as_u64().to_le_bytes());
        }
        let durability = DURABILITIES.iter().position(|d| *d == self.durability);
        out.push(durability.expect("all are listed") as u8);
        out.extend_from_slice(&self.candidate);
    }
}

impl Draw {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(DRAW);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }
}

fn put_error(out: &mut Vec<u8>, e: &Error) {
    let f = e.fields();
    out.extend_from_slice(&f.code.0);
    let (schema, table) = (f.schema.as_str(), f.table.as_str());
    let constraint = f.constraint.as_str();
    for s in [&*f.message, &*f.detail, &*f.hint, schema, table, constraint] {
        out.extend_from_slice(&(s.len() as u32).to_le_bytes());
        out.extend_from_slice(s.as_bytes());
    }
}

fn error(b: &mut &[u8]) -> Option<Error> {
    let (code, rest) = b.split_first_chunk()?;
    *b = rest;
    let mut next = || text(b);
    let e = Error::new(SqlState(*code), next()?)
        .detail(next()?)
        .hint(next()?);
    let (schema, table, constraint) = (next()?, next()?, next()?);
    Some(e.table(&schema, &table).constraint(&constraint))
}

fn small(b: &mut &[u8]) -> Option<u32> {
    let (n, rest) = b.split_first_chunk()?;
    *b = rest;
    Some(u32::from_le_bytes(*n))
}

fn number(b: &mut &[u8]) -> Option<u64> {
    let (n, rest) = b.split_first_chunk()?;
    *b = rest;
    Some(u64::from_le_bytes(*n))
}

fn byte(b: &mut &[u8]) -> Option<u8> {
    let (x, rest) = b.split_first()?;
    *b = rest;
    Some(*x)
}

fn text(b: &mut &[u8]) -> Option<String> {
    let (len, rest) = b.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *b = rest;
    String::from_utf8(text.to_vec()).ok()
}

fn asked(mut b: &[u8]) -> Option<Asked> {
    let b = &mut b;
    match byte(b)? {
        CERTIFY => {
            let (id, term) = (number(b)?, number(b)?);
            let again = match byte(b)? {
                0 => None,
                1 => Some(Position::from_u64(number(b)?)),
                _ => return None,
            };
            let durability = *DURABILITIES.get(usize::from(byte(b)?))?;
            Some(Asked::Certify(Certify {
                number: id,
                term,
                again,
                durability,
                candidate: b.to_vec(),
            }))
        }
        DRAW => {
            let draw = Draw {
                sequence: small(b)?,
                term: number(b)?,
                count: small(b)?,
            };
            b.is_empty().then_some(Asked::Draw(draw))
        }
        _ => None,
    }
}

/// Reads what a site says.
pub fn decode_asked(b: &[u8]) -> Result<Asked, &'static str> {
    asked(b).ok_or("a site asks for something unknown")
}

impl Answer {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, number: &[u8]| {
            out.push(kind);
            out.extend_from_slice(number);
        };
        match self {
            Answer::IAm => put(HERE, &[]),
            Answer::Later(number) => put(LATER, &number.to_le_bytes()),
            Answer::DrawLater(sequence) => put(DRAW_LATER, &sequence.to_le_bytes()),
            Answer::Committed(number, at) => {
                put(COMMITTED, &number.to_le_bytes());
                out.extend_from_slice(&at.as_u64().to_le_bytes());
            }
            Answer::Refused(number, at, e) => {
                put(REFUSED, &number.to_le_bytes());
                out.extend_from_slice(&at.as_u64().to_le_bytes());
                put_error(out, e);
            }
            Answer::Numbers(sequence, n) => {
                put(NUMBERS, &sequence.to_le_bytes());
                out.extend_from_slice(&n.first.to_le_bytes());
                out.extend_from_slice(&n.increment.to_le_bytes());
                out.extend_from_slice(&n.count.to_le_bytes());
                out.extend_from_slice(&n.at.as_u64().to_le_bytes());
            }
            Answer::NoNumbers(sequence, e) => {
                put(NO_NUMBERS, &sequence.to_le_bytes());
                put_error(out, e);
            }
        }
    }
}

fn answer(mut b: &[u8]) -> Option<Answer> {
    let b = &mut b;
    let answer = match byte(b)? {
        HERE => Answer::IAm,
        LATER => Answer::Later(number(b)?),
        COMMITTED => Answer::Committed(number(b)?, Position::from_u64(number(b)?)),
        REFUSED => Answer::Refused(number(b)?, Position::from_u64(number(b)?), error(b)?),
        NUMBERS => {
            let sequence = small(b)?;
            let numbers = Numbers {
                first: number(b)?.cast_signed(),
                increment: number(b)?.cast_signed(),
                count: small(b)?,
                at: Position::from_u64(number(b)?),
            };
            Answer::Numbers(sequence, numbers)
        }
        NO_NUMBERS => Answer::NoNumbers(small(b)?, error(b)?),
        DRAW_LATER => Answer::DrawLater(small(b)?),
        _ => return None,
    };
    b.is_empty().then_some(answer)
}

/// Reads what a primary says.
pub fn decode_answer(b: &[u8]) -> Result<Answer, &'static str> {
    answer(b).ok_or("an answer to a site that is not readable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_travel_and_rubbish_is_refused() {
        for durability in DURABILITIES {
            let c = Certify {
                number: u64::MAX,
                term: 7,
                again: (durability == Durability::On).then_some(Position::new(3, 1)),
                durability,
                candidate: vec![1, 2, 3],
            };
            let mut b = vec![];
            c.encode(&mut b);
            assert_eq!(decode_asked(&b), Ok(Asked::Certify(c)));
            assert!(decode_asked(&b[..12]).is_err());
        }
        let draw = Draw {
            sequence: 17,
            term: 7,
            count: 64,
        };
        let mut b = vec![];
        draw.encode(&mut b);
        assert_eq!(decode_asked(&b), Ok(Asked::Draw(draw)));
        assert!(decode_asked(&b[..12]).is_err());
        for bad in [&[][..], &[9], &[1, 0], &[2, 0]] {
            assert!(decode_asked(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn answers_travel_and_each_prefix_is_refused() {
        let at = Position::new(4, 9);
        let e = Error::new(SqlState::SERIALIZATION_FAILURE, "lost")
            .detail("the key (1)")
            .hint("again")
            .table("public", "t")
            .constraint("t_pkey");
        let mut b = vec![];
        Answer::Refused(3, at, e.clone()).encode(&mut b);
        match decode_answer(&b) {
            Ok(Answer::Refused(3, p, found)) => {
                assert_eq!(p, at);
                assert_eq!(format!("{found:?}"), format!("{e:?}"));
            }
            other => panic!("{other:?}"),
        }
        for n in 0..b.len() {
            assert!(decode_answer(&b[..n]).is_err(), "{n}");
        }
        let numbers = Numbers {
            first: -3,
            increment: -7,
            count: 32,
            at,
        };
        for a in [
            Answer::IAm,
            Answer::Later(5),
            Answer::Committed(6, at),
            Answer::Numbers(7, numbers),
            Answer::NoNumbers(8, Error::new(SqlState::SEQUENCE_LIMIT, "no more")),
            Answer::DrawLater(9),
        ] {
            let mut b = vec![];
            a.encode(&mut b);
            let found = decode_answer(&b).expect("as it was");
            assert_eq!(format!("{found:?}"), format!("{a:?}"));
        }
    }
}
