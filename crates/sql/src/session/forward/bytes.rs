//! The bytes of what travels: counted strings and numbers, nothing else. Both ends are of this program.

use base::{Error, Result, SqlState};

/// 08P01.
pub fn malformed() -> Error {
    Error::new(
        SqlState::PROTOCOL_VIOLATION,
        "a session's state from another node is not well formed",
    )
}

/// Writes.
#[derive(Default)]
pub struct Put(pub Vec<u8>);

impl Put {
    pub fn u8(&mut self, n: u8) -> &mut Put {
        self.0.push(n);
        self
    }

    pub fn u32(&mut self, n: u32) -> &mut Put {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    pub fn u64(&mut self, n: u64) -> &mut Put {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, b: &[u8]) -> &mut Put {
        self.u32(b.len() as u32);
        self.0.extend_from_slice(b);
        self
    }

    pub fn text(&mut self, s: &str) -> &mut Put {
        self.bytes(s.as_bytes())
    }

    /// Nothing, or something.
    pub fn option(&mut self, b: Option<&[u8]>) -> &mut Put {
        match b {
            Some(b) => self.u8(1).bytes(b),
            None => self.u8(0),
        }
    }
}

/// Reads.
pub struct Get<'a>(pub &'a [u8]);

impl<'a> Get<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(malformed)?;
        self.0 = tail;
        Ok(head)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes(b.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Result<u64> {
        let b = self.take(8)?;
        Ok(u64::from_le_bytes(b.try_into().expect("eight bytes")))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }

    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed())
    }

    pub fn option(&mut self) -> Result<Option<&'a [u8]>> {
        match self.u8()? {
            0 => Ok(None),
            _ => self.bytes().map(Some),
        }
    }

    /// A counted list.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Get<'a>) -> Result<T>) -> Result<Vec<T>> {
        let n = self.u32()?;
        // Not trusted for the capacity.
        let mut out = Vec::new();
        for _ in 0..n {
            out.push(one(self)?);
        }
        Ok(out)
    }

    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(malformed())
        }
    }
}
