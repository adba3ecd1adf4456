//! Small histories of sites in the ordinary tests. More: `cargo xtask sim --histories N`.

use sim::histories::run::{BATCH, Report, whole_batch};

#[test]
fn small_histories_of_sites_are_as_the_ideal() {
    let mut all = Report::default();
    for number in 0..20 {
        let ran = whole_batch(number);
        all.0.add(&ran.unwrap_or_else(|e| panic!("{e}")).0);
    }
    println!("{all}");
    // Histories in which nothing happens prove nothing.
    let c = all.0;
    assert_eq!(c.histories, 20 * BATCH);
    assert!(c.commits[0] > c.histories / 4 && c.commits[1] > c.histories / 2);
    assert!(c.refused > c.histories / 8 && c.again > c.histories / 8);
    assert!(c.asked > 100 && c.gaps > 200 && c.crashes > 20 && c.rights > 20);
}
