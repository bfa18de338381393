//! Realisations that a store must not accept, and outputs that cannot be found.

use super::*;

/// Copies the product to a cache, and begins a new store.
fn cached(nix: &Nix) -> Place<'_> {
    let mut place = Place::with_product(nix);
    run(&mut place.floe(&["copy", "--to", &place.cache(), &place.outputs()])).expect(0);
    place.begin_new_store();
    place
}

fn install(place: &Place<'_>, args: &[&str]) -> Command {
    let (cache, outputs) = (place.cache(), place.outputs());
    place.floe(&[&["install", "--from", &cache, &outputs], args].concat())
}

#[test]
fn realisation_without_trusted_signature_is_refused() {
    for nix in &nixes() {
        let place = cached(nix);
        run(&mut install(&place, &[]))
            .expect(3)
            .stderr_contains("cannot trust");
        // Nothing was installed. Nix up to 2.34 checks no signatures of realisations that it
        // substitutes, later versions do.
        place.assert_not_usable("", "");
        run(&mut install(&place, &["--no-check-sigs"])).expect(0);
        place.assert_usable("");
    }
}

#[test]
fn realisation_that_names_another_path_is_refused() {
    for nix in &nixes() {
        let place = cached(nix);
        let key = place.public_key.trim();
        let files = place.realisation_files();
        let text = |file: &PathBuf| fs::read_to_string(file).unwrap();
        let name_of = |text: &str| text.split("\"outPath\":\"").nth(1).unwrap()[..40].to_owned();
        let doc = files
            .iter()
            .find(|file| text(file).contains("!doc\""))
            .unwrap();
        let out = files
            .iter()
            .find(|file| text(file).contains("-product\""))
            .unwrap();
        let changed = text(out).replace(&name_of(&text(out)), &name_of(&text(doc)));
        assert_ne!(changed, text(out));
        fs::write(out, changed).unwrap();
        run(&mut install(&place, &["--extra-trusted-public-keys", key]))
            .expect(3)
            .stderr_contains("does not fit the trusted key key-1");
        place.assert_not_usable(&place.cache(), key);
    }
}

#[test]
fn damaged_realisation_is_refused() {
    for nix in &nixes() {
        let place = cached(nix);
        for file in place.realisation_files() {
            fs::write(file, "{").unwrap();
        }
        run(&mut install(&place, &[]))
            .expect(3)
            .stderr_contains("cannot use the realisation");
    }
}

/// The build of the derivation in two places can have different results.
#[test]
fn other_path_for_a_known_output_is_refused() {
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let place = cached(nix);
        run(&mut install(&place, &["--no-check-sigs"])).expect(0);
        let files = place.realisation_files();
        let text = |file: &PathBuf| fs::read_to_string(file).unwrap();
        let path_of = |text: &str| {
            let rest = text.split("\"outPath\":\"").nth(1).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        let [doc, out] = &files[..] else {
            panic!("{files:?}");
        };
        let changed = text(out).replace(&path_of(&text(out)), &path_of(&text(doc)));
        fs::write(out, changed).unwrap();
        run(&mut install(&place, &["--no-check-sigs"]))
            .expect(1)
            .stderr_contains("the store has");
        place.assert_usable("");
    }
}

#[test]
fn outputs_that_cannot_be_found_are_named() {
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let place = cached(nix);
        let (drv, outputs) = (&place.drv, place.outputs());
        let copy =
            |wanted: &str| run(&mut place.floe(&["copy", "--to", "file:///nonexistent/c", wanted]));
        copy(&outputs)
            .expect(1)
            .stderr_contains("its path is known only after a build")
            .stderr_contains("build it first");
        copy(&format!("{drv}^man"))
            .expect(1)
            .stderr_contains("its outputs are doc, out");
        copy(&format!("{}^out", drv.replace("-product", "-absent")))
            .expect(1)
            .stderr_contains("cannot read the derivation");
        copy(&format!("{drv}^"))
            .expect(2)
            .stderr_contains("names of outputs");
    }
}
