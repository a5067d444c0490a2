//! The files that show the figures of a report.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    plot::{DARK, LIGHT, plot},
    report::Report,
    table::{short, table},
};

const BEGIN: &str = "<!-- begin: benches/compare -->\n";
const END: &str = "<!-- end: benches/compare -->\n";
const README: &str = "README.md";
const PAGE: &str = "docs/performance.md";
const FIGURES: &str = "docs/plots/compare.json";

/// Writes the tables, the plots, and the figures of which they are made.
pub(crate) fn write(report: &Report) {
    fs::create_dir_all(path("docs/plots")).expect("docs is a folder");
    for (name, text) in files(report) {
        fs::write(path(name), text).expect("the files of the repository can be written");
    }
}

/// The report of which the files are made.
pub(crate) fn read() -> Report {
    let json = fs::read_to_string(path(FIGURES)).expect("--write makes it");
    serde_json::from_str(&json).expect("--write makes it")
}

/// Each file, with its text.
fn files(report: &Report) -> [(&'static str, String); 5] {
    let with = |name, table: String| {
        let page = fs::read_to_string(path(name)).expect("it is a text");
        (name, with_table(&page, &table))
    };
    [
        (FIGURES, report.json()),
        ("docs/plots/compare-light.svg", plot(report, &LIGHT)),
        ("docs/plots/compare-dark.svg", plot(report, &DARK)),
        with(PAGE, table(report)),
        with(README, short(report)),
    ]
}

/// Puts the table between the two marks.
fn with_table(page: &str, table: &str) -> String {
    let marks = "the page has both marks";
    let (head, rest) = page.split_once(BEGIN).expect(marks);
    let (_, tail) = rest.split_once(END).expect(marks);
    format!("{head}{BEGIN}\n{table}\n{END}{tail}")
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_and_the_plots_show_the_figures_of_the_report() {
        for (name, text) in files(&read()) {
            let kept = fs::read_to_string(path(name)).unwrap();
            assert!(kept == text, "{name}: run compare with --rewrite");
        }
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("head\n{BEGIN}old\n{END}tail\n");
        let new = with_table(&page, "new\n");
        assert_eq!(new, format!("head\n{BEGIN}\nnew\n\n{END}tail\n"));
        assert_eq!(with_table(&new, "new\n"), new);
    }
}
