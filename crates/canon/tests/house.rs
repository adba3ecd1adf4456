//! Several nodes of one process share what keeps house for them. A target of its own: the threads of the process are counted.

use canon::{Cluster, Options};
use tokio_postgres::{Client, NoTls};

struct Db(tokio::runtime::Runtime);

impl Db {
    fn new() -> Db {
        let r = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        Db(r.expect("a runtime"))
    }

    fn connect(&self, cluster: &Cluster, member: usize) -> Client {
        let url = cluster.url(member);
        self.0.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect(&url);
            tokio::spawn(connection);
            client
        })
    }

    fn run(&self, c: &Client, sql: &str) {
        self.0.block_on(c.batch_execute(sql)).expect(sql);
    }
}

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/task").expect("Linux says so");
    let name = |e: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(e.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    };
    all.filter_map(name).collect()
}

/// Three nodes of a process, under load: threads of the nodes as the options say, one set that keeps house, and one limit for all rows.
#[test]
fn three_nodes_of_a_process_have_one_housekeeper_and_one_limit() {
    const LIMIT: &str = "12MB";
    let options = Options {
        max_memory: Some(LIMIT.into()),
        replay_workers: Some(2),
        log_level: Some("error".into()),
        ..Options::default()
    };
    let cluster = Cluster::start(options, 2).expect("a cluster");
    let db = Db::new();
    let c = db.connect(&cluster, 0);
    db.run(&c, "CREATE TABLE big (id int PRIMARY KEY, filler text)");
    // Each row is at three nodes: the limit is reached with a third of it at each.
    let mut rows = 0;
    let refused = loop {
        let insert = format!(
            "INSERT INTO big SELECT g, repeat('x', 100) FROM generate_series({rows}, {rows} + 499) g"
        );
        match db.0.block_on(c.batch_execute(&insert)) {
            Ok(()) => rows += 500,
            Err(e) => break e,
        }
        cluster.catch_up().expect("the replicas follow");
        assert!(rows < 1_000_000, "no limit");
    };
    let code = refused.code().map(|c| c.code().to_owned());
    assert_eq!(code.as_deref(), Some("53200"), "{refused}");
    let bytes = rows * 100;
    assert!(
        (1 << 20..5 << 20).contains(&bytes),
        "{rows} rows at each of three nodes below {LIMIT}"
    );
    for member in cluster.replicas() {
        let r = db.connect(&cluster, member);
        db.run(&r, "SET canon.read_consistency = 'eventual'");
        let n = db.0.block_on(r.query_one("SELECT count(*) FROM big", &[]));
        assert_eq!(n.expect("counted").get::<_, i64>(0), rows as i64);
    }
    let all = threads();
    let count = |name: &str| all.iter().filter(|t| *t == name).count();
    for kept in ["housekeeper", "checkpointer", "spares", "anchor", "splits"] {
        assert_eq!(count(kept), 1, "{kept} of {all:?}");
    }
    // Those of the nodes themselves: one writes the primary's log; each replica has two and those of its replay.
    let own = [
        ("flusher", 1),
        ("follower", 2),
        ("own log", 2),
        ("replay-0", 2),
        ("replay-1", 2),
        ("replay-2", 0),
    ];
    for (name, expected) in own {
        assert_eq!(count(name), expected, "{name} of {all:?}");
    }
}
