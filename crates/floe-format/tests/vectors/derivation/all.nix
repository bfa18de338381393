# Small derivations that together have all kinds of outputs.
let
  base = {
    system = "x86_64-linux";
    builder = "/bin/sh";
  };
  text = builtins.toFile "text" "some text\n";
  textWithReference = builtins.toFile "text-with-reference" "see ${text}\n";
  flat = derivation (base // {
    name = "fixed-flat";
    outputHashAlgo = "sha256";
    outputHashMode = "flat";
    outputHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  });
  # Another derivation with the same fixed output.
  flatToo = derivation (base // {
    name = "fixed-flat";
    outputHashAlgo = "sha256";
    outputHashMode = "flat";
    outputHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    mirror = "elsewhere";
  });
  recursive = derivation (base // {
    name = "fixed-recursive";
    outputHashMode = "recursive";
    outputHash = "sha256-AeI9LAoUv+y7ioKz8RygA9cyK8/sFMOhtXFotEVIDkE=";
  });
  sha1 = derivation (base // {
    name = "fixed-sha1";
    outputHashAlgo = "sha1";
    outputHashMode = "recursive";
    outputHash = "a9993e364706816aba3e25717850c26c9cd0d89d";
  });
  plain = derivation (base // {
    name = "plain";
    args = [ "-c" "echo \"quotes\" \\ back\nnew\ttab\rreturn > $out" "" ];
    unicode = "é ☃";
    inherit text textWithReference;
  });
  many = derivation (base // {
    name = "many-1.0";
    outputs = [ "out" "dev" "lib" ];
    inherit plain flat flatToo recursive sha1;
  });
  user = derivation (base // {
    name = "user";
    outputs = [ "bin" ];
    builder = "${many.dev}/bin/sh";
    args = [ many.lib many.out plain ];
  });
  structured = derivation (base // {
    name = "structured";
    __structuredAttrs = true;
    outputs = [ "out" "doc" ];
    nested = { a = 1; b = [ true null 1.5 "é\n" ]; };
    inherit many;
  });
  floating = derivation (base // {
    name = "floating";
    outputs = [ "out" "dev" ];
    __contentAddressed = true;
    outputHashMode = "recursive";
    outputHashAlgo = "sha256";
  });
  deferred = derivation (base // {
    name = "deferred";
    inherit floating many;
  });
  impure = derivation (base // {
    name = "impure";
    __impure = true;
  });
  git = derivation (base // {
    name = "fixed-git";
    outputHashMode = "git";
    outputHash = "sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0=";
  });
  textMethod = derivation (base // {
    name = "fixed-text";
    outputHashMode = "text";
    outputHash = "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
  });
in
{
  inherit flat flatToo recursive sha1 plain many user structured floating deferred impure;
} // (if builtins.compareVersions builtins.nixVersion "2.20" > 0 then { inherit git textMethod; } else { })
