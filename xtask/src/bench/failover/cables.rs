//! Cables between the members, which can be pulled.
//!
//! ```text
//! node 1 ──▶ cable of node 0 ──▶ node 0          while node 0 or node 1 is cut off: not a byte passes
//! ```
//! Each member tells the others the address of its cable. A cable finds out which member a connection comes from: `/proc/net/tcp` names the socket, and
//! `/proc/PID/fd` its owner. It looks again when something is cut, as a member that has just been started was not known yet when it connected. What stood still ends when the cut is over, as a connection does whose packets were lost for long.
//!
//! Left out on purpose: delays and lost packets, and clients, which reach each node directly. So does the news of a newer term, which nodes send to where
//! the others take clients: a primary that is cut off may hear so that it leads no more.

use crate::Result;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How often a connection looks whether it is cut.
const LOOK: Duration = Duration::from_millis(20);
const NONE: usize = usize::MAX;

/// The end of a connection that is not the cable's: the ports that name it, and its node once that is known.
struct Far {
    port: u16,
    own: u16,
    node: OnceLock<usize>,
}

/// All cables of one cluster.
pub struct Cables {
    /// The node that is cut off.
    cut: AtomicUsize,
    pids: Mutex<Vec<u32>>,
}

impl Cables {
    pub fn new() -> Arc<Cables> {
        Arc::new(Cables {
            cut: AtomicUsize::new(NONE),
            pids: Mutex::default(),
        })
    }

    /// The processes of the nodes, by number.
    pub fn know(&self, pids: Vec<u32>) {
        *self.pids.lock().expect("whole") = pids;
    }

    /// Cuts this node off from all others, or nothing.
    pub fn cut(&self, node: Option<usize>) {
        self.cut.store(node.unwrap_or(NONE), Ordering::SeqCst);
    }

    /// Lays the cable of this node, which listens on `port`. The port of the cable.
    pub fn lay(self: &Arc<Cables>, node: usize, port: u16) -> Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let own = listener.local_addr().map_err(|e| e.to_string())?.port();
        let cables = self.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let cables = cables.clone();
                std::thread::spawn(move || cables.carry(stream, own, node, port));
            }
        });
        Ok(own)
    }

    fn is_cut(&self, from: &Far, to: usize) -> bool {
        let cut = self.cut.load(Ordering::SeqCst);
        if cut == NONE || cut == to {
            return cut == to;
        }
        if from.node.get().is_none()
            && let Some(node) = self.owner(from.port, from.own)
        {
            // Another thread may have found the same.
            _ = from.node.set(node);
        }
        from.node.get() == Some(&cut)
    }

    fn carry(self: Arc<Cables>, near: TcpStream, own: u16, to: usize, port: u16) {
        let Ok(there) = near.peer_addr() else { return };
        let from = Arc::new(Far {
            port: there.port(),
            own,
            node: OnceLock::new(),
        });
        let mut waited = false;
        while self.is_cut(&from, to) {
            waited = true;
            std::thread::sleep(LOOK);
        }
        if waited {
            return;
        }
        let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
            return;
        };
        let (Ok(near2), Ok(far2)) = (near.try_clone(), far.try_clone()) else {
            return;
        };
        let (back, of) = (self.clone(), from.clone());
        std::thread::spawn(move || back.copy(far2, near2, &of, to));
        self.copy(near, far, &from, to);
    }

    /// Until one end closes, or a cut is over.
    fn copy(&self, mut a: TcpStream, mut b: TcpStream, from: &Far, to: usize) {
        let end = |a: &TcpStream, b: &TcpStream| {
            for s in [a, b] {
                // It may be closed already.
                _ = s.shutdown(std::net::Shutdown::Both);
            }
        };
        _ = a.set_nodelay(true);
        _ = a.set_read_timeout(Some(LOOK));
        let mut bytes = [0; 64 * 1024];
        loop {
            let read = a.read(&mut bytes);
            if self.is_cut(from, to) {
                while self.is_cut(from, to) {
                    std::thread::sleep(LOOK);
                }
                return end(&a, &b);
            }
            match read {
                Ok(n @ 1..) if b.write_all(&bytes[..n]).is_ok() => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                _ => return end(&a, &b),
            }
        }
    }

    /// The node whose socket this is: it goes from this port to that one.
    fn owner(&self, from: u16, to: u16) -> Option<usize> {
        let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
        let inode = table.lines().find_map(|line| inode(line, from, to))?;
        let name = format!("socket:[{inode}]");
        let pids = self.pids.lock().expect("whole").clone();
        pids.iter().position(|pid| {
            let all = std::fs::read_dir(format!("/proc/{pid}/fd"));
            let mut all = all.into_iter().flatten().flatten();
            all.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|l| l.to_str() == Some(&name)))
        })
    }
}

/// The inode of the socket that this line of `/proc/net/tcp` is about, if it goes from this port to that one.
fn inode(line: &str, from: u16, to: u16) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let port = |word: &str| u16::from_str_radix(word.split_once(':')?.1, 16).ok();
    let is = port(words.get(1)?)? == from && port(words.get(2)?)? == to;
    is.then(|| words.get(9).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_names_its_socket() {
        let line = "   3: 0100007F:BC1E 0100007F:1538 01 00000000:00000000 02:000A 00000000  1000        0 81324 2 0000 20 4 30 10 -1";
        assert_eq!(inode(line, 0xbc1e, 0x1538), Some("81324"));
        assert_eq!(inode(line, 0x1538, 0xbc1e), None);
        assert_eq!(inode("  sl  local_address rem_address   st", 1, 2), None);
    }

    #[test]
    fn a_cable_carries_until_it_is_cut() {
        let node = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = node.local_addr().expect("bound").port();
        let cables = Cables::new();
        cables.know(vec![std::process::id()]);
        let cable = cables.lay(7, port).expect("laid");
        let mut near = TcpStream::connect(("127.0.0.1", cable)).expect("connected");
        let (mut far, _) = node.accept().expect("carried");
        near.write_all(b"a").expect("written");
        let mut got = [0];
        far.read_exact(&mut got).expect("it arrives");
        // This process is node 0, and it is cut off.
        cables.cut(Some(0));
        near.write_all(b"b").expect("written into the kernel");
        far.set_read_timeout(Some(Duration::from_millis(200)))
            .expect("set");
        let nothing = far.read(&mut got);
        assert!(nothing.is_err(), "{nothing:?}");
        cables.cut(None);
        far.set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set");
        assert_eq!(far.read(&mut got).expect("closed"), 0);
    }
}
