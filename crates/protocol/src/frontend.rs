//! Messages from the client, read in place: nothing is copied but what outlives the message.
//!
//! ```text
//! | type u8 | length i32, itself included | body |
//! ```
//! [`Reader`] takes the body apart with a check at every step, so that a malformed message is an error (08P01) and never a
//! panic; strings must be UTF-8 (22021). `pgwire`'s own decoders of these messages trust the lengths inside them, copy every
//! string and parameter, and replace bad UTF-8, so only the start-up and the replies use it.
//!
//! Left out on purpose: `FunctionCall`, which no driver sends any more.

use base::{Error, Format, Result, SqlState};

/// Longest message of a client that has logged in; PostgreSQL takes one GiB.
pub const MAX_MESSAGE: usize = 256 << 20;
/// Longest message of a kind that carries no data.
const MAX_SMALL: usize = 64 << 10;

/// A message, borrowed from the input buffer.
#[derive(Debug)]
pub enum Frontend<'a> {
    Query(&'a str),
    Parse {
        name: &'a str,
        query: &'a str,
        types: Vec<u32>,
    },
    Bind(Bind<'a>),
    Describe {
        portal: bool,
        name: &'a str,
    },
    Execute {
        portal: &'a str,
        max_rows: i32,
    },
    Close {
        portal: bool,
        name: &'a str,
    },
    Flush,
    Sync,
    Terminate,
    CopyData(&'a [u8]),
    CopyDone,
    CopyFail(&'a str),
    Password,
    /// Of another node only: whose session this is to be (`sql::session::forward`).
    Adopt(&'a [u8]),
}

/// A Bind message: the counted lists are walked by iterators.
#[derive(Clone, Copy, Debug)]
pub struct Bind<'a> {
    pub portal: &'a str,
    pub statement: &'a str,
    pub param_formats: Formats<'a>,
    pub params: Params<'a>,
    pub result_formats: Formats<'a>,
}

/// Format codes: none means all text, one means all alike.
#[derive(Clone, Copy, Debug)]
pub struct Formats<'a>(&'a [u8]);

impl Formats<'_> {
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether there is none: all is text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn code(&self, i: usize) -> u16 {
        u16::from_be_bytes([self.0[2 * i], self.0[2 * i + 1]])
    }

    /// The codes as they stand in the message.
    pub fn iter(&self) -> impl Iterator<Item = Result<Format>> + '_ {
        (0..self.len()).map(|i| match self.code(i) {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            n => Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unsupported format code: {n}"),
            )),
        })
    }
}

/// Parameter values: checked when the message was read.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    pub count: usize,
    body: &'a [u8],
}

impl<'a> Params<'a> {
    /// `None` is NULL.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut rest = self.body;
        (0..self.count).map(move |_| {
            let (head, tail) = rest.split_at(4);
            let n = i32::from_be_bytes(head.try_into().expect("four bytes"));
            if n < 0 {
                rest = tail;
                return None;
            }
            let (value, tail) = tail.split_at(n as usize);
            rest = tail;
            Some(value)
        })
    }
}

/// A whole message at the front of `buf`: (type, bytes of type, length and body), or `None` when more must be read.
pub fn frame(buf: &[u8]) -> Result<Option<(u8, usize)>> {
    let Some(head) = buf.first_chunk::<5>() else {
        // An unknown type byte is refused without waiting for a length.
        return match buf.first() {
            Some(&t) if limit(t).is_none() => Err(unknown(t)),
            _ => Ok(None),
        };
    };
    let limit = limit(head[0]).ok_or_else(|| unknown(head[0]))?;
    let len = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if len < 4 || len as usize > limit {
        return Err(violation("invalid message length"));
    }
    let whole = len as usize + 1;
    Ok((buf.len() >= whole).then_some((head[0], whole)))
}

/// How many bytes the message at the front of `buf` has in all, once its head is there.
pub fn wanted(buf: &[u8]) -> Option<usize> {
    let head = buf.first_chunk::<5>()?;
    Some(u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1)
}

fn limit(kind: u8) -> Option<usize> {
    match kind {
        b'Q' | b'P' | b'B' | b'd' | b'a' => Some(MAX_MESSAGE),
        b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' | b'p' => Some(MAX_SMALL),
        _ => None,
    }
}

fn unknown(kind: u8) -> Error {
    violation(format!("invalid frontend message type {kind}"))
}

/// 08P01.
pub fn violation(message: impl Into<String>) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, message)
}

/// Reads the body of a message of this type.
pub fn decode(kind: u8, body: &[u8]) -> Result<Frontend<'_>> {
    let mut r = Reader(body);
    let message = match kind {
        b'Q' => Frontend::Query(r.string()?),
        b'P' => {
            let (name, query) = (r.string()?, r.string()?);
            let n = r.u16()?;
            let types = r.take(4 * n)?;
            let types = types
                .chunks_exact(4)
                .map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]))
                .collect();
            Frontend::Parse { name, query, types }
        }
        b'B' => Frontend::Bind(bind(&mut r)?),
        b'D' | b'C' => {
            let portal = match r.take(1)?[0] {
                b'P' => true,
                b'S' => false,
                t => return Err(violation(format!("invalid target type {t}"))),
            };
            let name = r.string()?;
            if kind == b'D' {
                Frontend::Describe { portal, name }
            } else {
                Frontend::Close { portal, name }
            }
        }
        b'E' => Frontend::Execute {
            portal: r.string()?,
            max_rows: r.i32()?,
        },
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'd' => Frontend::CopyData(std::mem::take(&mut r.0)),
        b'a' => Frontend::Adopt(std::mem::take(&mut r.0)),
        b'c' => Frontend::CopyDone,
        b'f' => Frontend::CopyFail(r.string()?),
        b'p' => {
            r.0 = &[];
            Frontend::Password
        }
        t => return Err(unknown(t)),
    };
    if !r.0.is_empty() {
        return Err(violation("invalid message format"));
    }
    Ok(message)
}

fn bind<'a>(r: &mut Reader<'a>) -> Result<Bind<'a>> {
    let (portal, statement) = (r.string()?, r.string()?);
    let n = r.u16()?;
    let param_formats = Formats(r.take(2 * n)?);
    let count = r.u16()?;
    if param_formats.len() > 1 && param_formats.len() != count {
        return Err(violation(format!(
            "bind message has {} parameter formats but {count} parameters",
            param_formats.len()
        )));
    }
    let start = r.0;
    for _ in 0..count {
        match r.i32()? {
            -1 => {}
            n if n >= 0 => drop(r.take(n as usize)?),
            _ => return Err(violation("invalid parameter length in bind message")),
        }
    }
    let params = Params {
        count,
        body: &start[..start.len() - r.0.len()],
    };
    let n = r.u16()?;
    let result_formats = Formats(r.take(2 * n)?);
    Ok(Bind {
        portal,
        statement,
        param_formats,
        params,
        result_formats,
    })
}

/// Takes bytes from the front of a message body.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| violation("insufficient data left in message"))?;
        self.0 = tail;
        Ok(head)
    }

    pub fn u16(&mut self) -> Result<usize> {
        let b = self.take(2)?;
        Ok(usize::from(u16::from_be_bytes([b[0], b[1]])))
    }

    pub fn i32(&mut self) -> Result<i32> {
        let b = self.take(4)?;
        Ok(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A string that ends with a zero byte.
    pub fn string(&mut self) -> Result<&'a str> {
        let n = self
            .0
            .iter()
            .position(|&b| b == 0)
            .ok_or_else(|| violation("invalid string in message"))?;
        let bytes = self.take(n)?;
        self.take(1)?;
        base::text(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_for_the_whole_message_and_refuse_bad_lengths() {
        assert!(frame(b"").unwrap().is_none());
        assert!(frame(b"Q\0\0\0\x06a").unwrap().is_none());
        assert_eq!(frame(b"Q\0\0\0\x06a\0S").unwrap(), Some((b'Q', 7)));
        for bad in [
            &b"Q\0\0\0\x03"[..],
            b"Q\xff\xff\xff\xff",
            b"S\x7f\xff\xff\xff",
            b"\0",
            b"GET / HTTP",
        ] {
            let e = frame(bad).unwrap_err();
            assert_eq!(e.code(), SqlState::PROTOCOL_VIOLATION);
        }
    }

    #[test]
    fn a_bind_is_taken_apart() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01";
        let Frontend::Bind(b) = decode(b'B', body).unwrap() else {
            panic!("a bind")
        };
        assert_eq!((b.portal, b.statement), ("p", "s"));
        let params: Vec<_> = b.params.iter().collect();
        assert_eq!(params, vec![Some(&[0, 0, 0, 7][..]), None]);
        assert_eq!(
            b.result_formats.iter().collect::<Result<Vec<_>>>().unwrap(),
            vec![Format::Binary]
        );
    }

    #[test]
    fn every_prefix_of_a_message_is_an_error_and_not_a_panic() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01";
        for n in 0..body.len() {
            assert!(decode(b'B', &body[..n]).is_err(), "{n}");
        }
        let mut longer = body.to_vec();
        longer.push(0);
        assert!(decode(b'B', &longer).is_err());
    }

    #[test]
    fn bad_utf8_is_22021() {
        let e = decode(b'Q', b"SELECT '\xc3\x28'\0").unwrap_err();
        assert_eq!(e.code(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        assert!(e.fields().message.ends_with(": 0xc3 0x28"), "{e}");
    }
}
