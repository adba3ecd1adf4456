//! A switch with network namespaces behind its ports. Each direction between two ports can be cut for itself.
//!
//! A cut is a rule of the switch that drops what goes from one address to another. The sender hears nothing of that.
//!
//! Left out on purpose: delays, and packets that are lost now and then.

use super::*;

fn ip(arguments: &[&str]) -> bool {
    let done = Command::new("ip").args(arguments).output();
    done.is_ok_and(|d| d.status.success())
}

/// The address behind a port.
pub fn address(port: usize) -> String {
    format!("10.77.{port}.2")
}

/// Ways between ports: from, to.
pub type Ways = BTreeSet<(usize, usize)>;

pub struct Net {
    switch: String,
    pub ports: Vec<String>,
    cuts: Mutex<Ways>,
}

impl Net {
    /// None: this user may make no namespaces, or there is no `ip`. The test has said so.
    pub fn new(ports: usize) -> Option<Net> {
        static NETS: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NETS.fetch_add(1, Ordering::SeqCst));
        let tag = format!("canon-{process}-{number}");
        let net = Net {
            switch: format!("{tag}-s"),
            ports: (0..ports).map(|i| format!("{tag}-{i}")).collect(),
            cuts: Mutex::default(),
        };
        let switch = net.switch.as_str();
        if !ip(&["netns", "add", switch]) {
            common::lacks("network namespaces: the program ip (iproute2), run by root");
            return None;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        let mut made = ip(&["netns", "exec", switch, "sh", "-c", forward]);
        for (i, port) in net.ports.iter().enumerate() {
            let (link, gate) = (format!("port{i}"), format!("10.77.{i}.1"));
            let (near, far) = (format!("{gate}/30"), format!("{}/30", address(i)));
            let all: [&[&str]; 7] = [
                &["netns", "add", port],
                &[
                    "link", "add", &link, "netns", switch, "type", "veth", "peer", "name", "eth0",
                    "netns", port,
                ],
                &["-n", switch, "addr", "add", &near, "dev", &link],
                &["-n", switch, "link", "set", &link, "up"],
                &["-n", port, "addr", "add", &far, "dev", "eth0"],
                &["-n", port, "link", "set", "eth0", "up"],
                &["-n", port, "link", "set", "lo", "up"],
            ];
            made &= all.iter().all(|command| ip(command));
            made &= ip(&["-n", port, "route", "add", "default", "via", &gate]);
        }
        if !made {
            common::lacks("network namespaces: links and routes between them");
            return None;
        }
        Some(net)
    }

    fn rule(&self, what: &str, from: usize, to: usize) {
        let (from, to) = (address(from), address(to));
        let switch = self.switch.as_str();
        let rule = [
            "-n",
            switch,
            "rule",
            what,
            "from",
            &from,
            "to",
            &to,
            "blackhole",
        ];
        assert!(ip(&rule), "ip rule {what} from {from} to {to}");
    }

    /// What goes these ways is lost from now on, and nothing else.
    pub fn cut(&self, ways: &Ways) {
        let mut cuts = self.cuts.lock().expect("whole");
        for (from, to) in ways.difference(&cuts) {
            self.rule("add", *from, *to);
        }
        for (from, to) in cuts.difference(ways) {
            self.rule("del", *from, *to);
        }
        *cuts = ways.clone();
    }

    pub fn heal(&self) {
        self.cut(&Ways::new());
    }

    /// Has the calling thread open its sockets behind this port.
    pub fn enter(&self, port: usize) {
        let name = format!("/run/netns/{}", self.ports[port]);
        let file = std::fs::File::open(name).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter it");
    }

    /// What a node's metrics say; empty: no answer.
    pub fn metrics(&self, port: usize, http: u16) -> String {
        let ask = || {
            self.enter(port);
            get(http, "/metrics").1
        };
        std::thread::scope(|s| s.spawn(ask).join().expect("it asks"))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.ports.iter().chain([&self.switch]) {
            ip(&["netns", "del", name]);
        }
    }
}
