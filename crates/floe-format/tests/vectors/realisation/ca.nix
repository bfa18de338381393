let
  make = attributes: derivation ({
    system = builtins.currentSystem;
    builder = "/bin/sh";
    __contentAddressed = true;
    outputHashMode = "recursive";
    outputHashAlgo = "sha256";
  } // attributes);
  tool = make { name = "tool"; args = [ "-c" "echo tool > $out" ]; };
in make {
  name = "product";
  outputs = [ "out" "doc" ];
  args = [ "-c" "echo ${tool} > $out; echo doc > $doc" ];
}
