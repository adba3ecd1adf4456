//! What NOTIFY says, and its bytes in the log.
//!
//! ```text
//! session i32 | channel length u16 | channel | payload
//! ```

/// One notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    pub channel: Box<str>,
    pub payload: Box<str>,
    /// The number of the session that said it, at the primary.
    pub pid: i32,
}

impl Notification {
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(6 + self.bytes());
        b.extend_from_slice(&self.pid.to_le_bytes());
        b.extend_from_slice(&(self.channel.len() as u16).to_le_bytes());
        b.extend_from_slice(self.channel.as_bytes());
        b.extend_from_slice(self.payload.as_bytes());
        b
    }

    /// The opposite; none when the bytes are not well formed.
    pub fn decode(b: &[u8]) -> Option<Notification> {
        let (pid, b) = b.split_first_chunk()?;
        let (length, b) = b.split_first_chunk()?;
        let (channel, payload) = b.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        Some(Notification {
            channel: std::str::from_utf8(channel).ok()?.into(),
            payload: std::str::from_utf8(payload).ok()?.into(),
            pid: i32::from_le_bytes(*pid),
        })
    }

    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.channel.len() + self.payload.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_from_its_bytes() {
        let n = Notification {
            channel: "größe".into(),
            payload: "".into(),
            pid: -3,
        };
        let b = n.encode();
        assert_eq!(Notification::decode(&b), Some(n));
        for cut in 0..b.len() {
            assert_eq!(Notification::decode(&b[..cut]), None);
        }
        assert_eq!(Notification::decode(&[0, 0, 0, 0, 1, 0, 0xff]), None);
    }
}
