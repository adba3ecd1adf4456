//! What a log holds around a position, as headers: the evidence that a node holds more of a history than another.
//!
//! ```text
//! … | group, ends at or below the position | first group above it | …
//!     `at`                                   `next`                    `segment`: the header of next's segment, if it is the first in it
//! ```
//! A header stands for its group: it has the checksums of the heads and of the data, and every one of them was compared with its bytes when it was
//! read here. So headers are enough to tell whether two logs hold the same group, and none of the rows leaves the node.
//!
//! Where the log begins above the position, the header of the newest checkpoint says why.
//!
//! Left out on purpose: what is made of it (`replica::ship::evidence`).

use crate::checkpoint::decode_header;
use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::group::{GROUP_HEADER, Group};
use crate::reader::LogReader;
use crate::segment::{SEGMENT_HEADER, SegmentName};
use base::Position;
use env::OpenMode;

/// The bytes of a header: of a group, a segment or a checkpoint.
pub type Header = [u8; GROUP_HEADER as usize];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The last group that ends at or below the position.
    pub at: Option<Header>,
    /// The header of the segment in which `next` is the first group.
    pub segment: Option<Header>,
    /// The first group with a commit above it.
    pub next: Option<Header>,
    /// The newest checkpoint, where there is no `at`.
    pub checkpoint: Option<Header>,
}

fn head(group: &Group) -> Header {
    let bytes = group.as_bytes().first_chunk();
    *bytes.expect("a group has a header")
}

impl DataDir {
    /// What is here around this position. Reads two segments at most; beside a writer, too.
    pub fn around(&self, position: Position) -> Result<Around> {
        let mut found = Around::default();
        let names = self.log().list()?;
        // The last that begins at or below it, and the one before: a segment begins at a lower bound.
        let begins = names.iter().rposition(|n| n.first.prev() <= position);
        let from = begins.unwrap_or(0).saturating_sub(1);
        if let Some(name) = names.get(from) {
            let open = |from| LogReader::open(self.log().clone(), self.cluster(), from);
            let mut reader = match open(name.first.prev()) {
                Err(Error::Missing { oldest, .. }) => open(oldest)?,
                reader => reader?,
            };
            while let Some(group) = reader.next_group()? {
                if group.header().last <= position {
                    found.at = Some(head(&group));
                    continue;
                }
                found.next = Some(head(&group));
                let h = group.header();
                if h.offset == SEGMENT_HEADER {
                    let number = h.segment;
                    let list = self.log().list()?;
                    let name = list.into_iter().find(|n| n.number == number);
                    found.segment = name.map(|n| self.segment_header(n)).transpose()?;
                }
                break;
            }
        }
        if found.at.is_none()
            && let Some(checkpoint) = self.latest_checkpoint()?
        {
            let bytes = checkpoint.read_at(0, GROUP_HEADER as usize)?;
            found.checkpoint = bytes.first_chunk().copied();
        }
        Ok(found)
    }

    fn segment_header(&self, name: SegmentName) -> Result<Header> {
        let path = self.log().path(name);
        let mut header = [0; GROUP_HEADER as usize];
        self.disk
            .open(&path, OpenMode::Read)
            .and_then(|f| f.read_exact_at(&mut header, 0))
            .map_err(|e| Error::io("reading", &path, e))?;
        Ok(header)
    }
}

/// What the header of a checkpoint says: its cluster, and from where the log is needed beside it; `Err` says what is wrong.
pub fn checkpoint_header(bytes: &Header) -> std::result::Result<(u128, Position), &'static str> {
    decode_header(bytes).map(|(cluster, _, start)| (cluster, start))
}
