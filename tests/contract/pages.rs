//! The links of the pages.

use std::{fs, path::Path};

/// Those of redlock-rt/docs are pages of rustdoc, which looks at links itself.
const FOLDERS: [&str; 8] = [
    ".",
    "docs",
    "tests",
    "examples/seckill",
    "redlock-cli",
    "redlock-embedded",
    "redlock-macros",
    "redlock-tower",
];
const WHOLE: [&str; 3] = [
    "https://github.com/redlock-rt/redlock-rt/blob/main/",
    "https://github.com/redlock-rt/redlock-rt/tree/main/",
    "https://raw.githubusercontent.com/redlock-rt/redlock-rt/main/",
];

/// A page without its code.
fn prose(page: &Path) -> String {
    let page = fs::read_to_string(page).unwrap();
    page.split("\n```").step_by(2).collect()
}

/// The anchor of a heading, as GitHub and the book make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    text.chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// What is wrong with a link of a page in the folder.
fn flaw(folder: &str, page: &Path, link: &str) -> Option<&'static str> {
    let whole = WHOLE.iter().find_map(|whole| link.strip_prefix(whole));
    let target = whole.unwrap_or(link);
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // A registry shows the pages of the crates, and the book has only those of docs/.
    let alone = folder.starts_with("redlock-") || page == root.join("./README.md");
    let file = match (whole, path) {
        (None, _) if path.contains("://") => return None,
        (None, "") => page.to_owned(),
        (None, _) if alone || folder == "docs" && path.starts_with("..") => {
            return Some("is not whole");
        }
        (None, _) => root.join(folder).join(path),
        (Some(_), _) => root.join(path),
    };
    if !file.exists() {
        return Some("has no file");
    }
    let found = heading.is_empty() || file.extension().is_none_or(|end| end != "md") || {
        let text = prose(&file);
        let mut headings = text.lines().filter(|line| line.starts_with('#'));
        headings.any(|line| anchor(line) == heading)
    };
    (!found).then_some("has no heading")
}

#[test]
fn each_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut flaws = Vec::new();
    for folder in FOLDERS {
        let files = fs::read_dir(root.join(folder)).unwrap();
        let pages = files.map(|file| file.unwrap().path());
        for page in pages.filter(|file| file.extension().is_some_and(|end| end == "md")) {
            let text = prose(&page)
                .replace("srcset=\"", "](")
                .replace("src=\"", "](");
            for link in text.split("](").skip(1) {
                let link = link.split([')', '"']).next().unwrap();
                let flaw = flaw(folder, &page, link);
                flaws.extend(flaw.map(|flaw| format!("{}: {link} {flaw}", page.display())));
            }
        }
    }
    assert!(flaws.is_empty(), "{flaws:#?}");
}

#[test]
fn the_book_has_each_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let chapters = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    for file in fs::read_dir(docs).unwrap() {
        let page = file.unwrap().file_name().into_string().unwrap();
        let listed = !page.ends_with(".md") || page == "SUMMARY.md";
        assert!(listed || chapters.contains(&format!("]({page})")), "{page}");
    }
}
