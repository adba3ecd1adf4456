//! What a site and its primary say to each other over the connection of `CERTIFY_COMMITS`.
//!
//! | message | bytes, little-endian |
//! |---|---|
//! | certify | kind u8 (2), number u64, term u64, again u8, durability u8, [`base::Candidate`] |
//! | I am there | kind u8 (1) |
//! | committed | kind u8 (2), number u64, position u64 |
//! | refused | kind u8 (3), number u64, position u64, SQLSTATE, then text: message, detail, hint, schema, table, constraint |
//! | later | kind u8 (4), number u64: nothing was decided, ask again |
//! | text | length u32, UTF-8 |
//!
//! The position of a refusal is one at which what won is installed.
//!
//! Left out on purpose: versions of this protocol; the cluster's nodes are of one release while sites write (docs/sites.md).

use base::{Error, Position, SqlState};
use txn::Durability;

const HERE: u8 = 1;
const CERTIFY: u8 = 2;
const COMMITTED: u8 = 2;
const REFUSED: u8 = 3;
const LATER: u8 = 4;

/// A candidate that asks for its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certify {
    pub number: u64,
    /// The term of the history that the site follows.
    pub term: u64,
    /// The primary may have had it before.
    pub again: bool,
    pub durability: Durability,
    pub candidate: Vec<u8>,
}

/// What a primary says.
#[derive(Clone, Debug)]
pub enum Answer {
    IAm,
    Committed(u64, Position),
    Refused(u64, Position, Error),
    Later(u64),
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
        out.push(u8::from(self.again));
        let durability = DURABILITIES.iter().position(|d| *d == self.durability);
        out.push(durability.expect("all are listed") as u8);
        out.extend_from_slice(&self.candidate);
    }
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

fn asked(mut b: &[u8]) -> Option<Certify> {
    let b = &mut b;
    if byte(b)? != CERTIFY {
        return None;
    }
    let (number, term) = (number(b)?, number(b)?);
    let again = byte(b)? == 1;
    let durability = *DURABILITIES.get(usize::from(byte(b)?))?;
    Some(Certify {
        number,
        term,
        again,
        durability,
        candidate: b.to_vec(),
    })
}

/// Reads what a site says.
pub fn decode_asked(b: &[u8]) -> Result<Certify, &'static str> {
    asked(b).ok_or("a site asks for something unknown")
}

impl Answer {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, number: u64| {
            out.push(kind);
            out.extend_from_slice(&number.to_le_bytes());
        };
        match self {
            Answer::IAm => out.push(HERE),
            Answer::Later(number) => put(LATER, *number),
            Answer::Committed(number, at) => {
                put(COMMITTED, *number);
                out.extend_from_slice(&at.as_u64().to_le_bytes());
            }
            Answer::Refused(number, at, e) => {
                put(REFUSED, *number);
                out.extend_from_slice(&at.as_u64().to_le_bytes());
                let f = e.fields();
                out.extend_from_slice(&f.code.0);
                let (schema, table) = (f.schema.as_str(), f.table.as_str());
                let constraint = f.constraint.as_str();
                for s in [&*f.message, &*f.detail, &*f.hint, schema, table, constraint] {
                    out.extend_from_slice(&(s.len() as u32).to_le_bytes());
                    out.extend_from_slice(s.as_bytes());
                }
            }
        }
    }
}

fn answer(mut b: &[u8]) -> Option<Answer> {
    let b = &mut b;
    let kind = byte(b)?;
    if kind == HERE {
        return b.is_empty().then_some(Answer::IAm);
    }
    let of = number(b)?;
    let answer = match kind {
        LATER => Answer::Later(of),
        COMMITTED => Answer::Committed(of, Position::from_u64(number(b)?)),
        REFUSED => {
            let at = Position::from_u64(number(b)?);
            let (code, rest) = b.split_first_chunk()?;
            *b = rest;
            let mut next = || text(b);
            let e = Error::new(SqlState(*code), next()?)
                .detail(next()?)
                .hint(next()?);
            let (schema, table, constraint) = (next()?, next()?, next()?);
            Answer::Refused(of, at, e.table(&schema, &table).constraint(&constraint))
        }
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
                again: durability == Durability::On,
                durability,
                candidate: vec![1, 2, 3],
            };
            let mut b = vec![];
            c.encode(&mut b);
            assert_eq!(decode_asked(&b), Ok(c));
            assert!(decode_asked(&b[..12]).is_err());
        }
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
        for a in [Answer::IAm, Answer::Later(5), Answer::Committed(6, at)] {
            let mut b = vec![];
            a.encode(&mut b);
            let found = decode_answer(&b).expect("as it was");
            assert_eq!(format!("{found:?}"), format!("{a:?}"));
        }
    }
}
