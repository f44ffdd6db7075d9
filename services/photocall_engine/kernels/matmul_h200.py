"""The table of `matmul_table` for one NVIDIA H200, from `ops/gpu/tune.py` of 2026-11-30 (torch 2.11, Triton 3.6).

Every candidate gave a row the same bits, whatever the tile; only the number of splits decides. A comment says what a
product takes beside the library's by number of rows; the library's has no gate to finish. Tiles across were tried later
for up to 512 rows, with weights that are fetched ahead: 3 to 14 % faster where they stand, beside what was there. Where
one number of splits is best for few rows and another for many, E4B's way down has that of decode, others the mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from photocall_engine.kernels.matmul_plan import MatmulPlan, Tile

H200 = "NVIDIA H200"

# fmt: off
TILES: Mapping[tuple[str, int, int], MatmulPlan] = {
    # pair,us / cuBLAS: 16:30/31,64:32/31,128:38/34,256:61/43,384:66/59,512:95/76,1024:159/145,2048:311/283,4096:616/555
    (H200, 20480, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 128, 64, 4, 4, across=True)), (64, Tile(64, 128, 64, 4, 4, across=True)),
        (128, Tile(128, 256, 64, 8, 4)), (256, Tile(128, 128, 64, 4, 4, across=True)),
        (512, Tile(128, 256, 64, 8, 4)), (2048, Tile(128, 128, 64, 4, 3)), (4096, Tile(128, 256, 64, 8, 3)),
    )),
    # product, us / cuBLAS: 16:17/17, 384:33/32, 1024:85/75, 2048:168/151, 4096:305/296
    (H200, 10752, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 64, 4, 6, across=True)), (64, Tile(64, 128, 128, 4, 3, across=True)),
        (256, Tile(256, 128, 64, 8, 4, across=True)), (384, Tile(128, 128, 64, 4, 3)),
        (512, Tile(128, 128, 64, 8, 4, across=True)), (1024, Tile(128, 256, 64, 8, 3, walk="flat")),
        (2048, Tile(128, 128, 64, 8, 4, walk="flat")), (4096, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product,us/cuBLAS: 16:17/19,64:19/20,128:22/22,256:33/28,384:35/34,512:61/38,1024:104/72,2048:182/133,4096:315/267
    (H200, 2560, 10240): MatmulPlan("tma", 4, (
        (16, Tile(16, 128, 64, 4, 6, apart=True, across=True)),
        (64, Tile(64, 64, 64, 4, 6, apart=True)), (128, Tile(64, 64, 64, 4, 4, apart=True)),
        (384, Tile(128, 256, 64, 8, 4, apart=True)), (512, Tile(128, 128, 64, 8, 4, across=True)),
        (1024, Tile(128, 256, 64, 8, 3)), (4096, Tile(128, 128, 64, 8, 4)),
    )),
    # product,us / cuBLAS: 16:10/11,64:12/12,128:13/11,256:18/15,384:31/20,512:30/24,1024:49/45,2048:85/86,4096:171/167
    (H200, 6144, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 5, across=True)),
        (64, Tile(64, 64, 128, 4, 4)), (128, Tile(64, 64, 64, 4, 6)), (256, Tile(128, 128, 64, 8, 4, across=True)),
        (512, Tile(256, 128, 64, 8, 4, across=True)),
        (1024, Tile(128, 128, 64, 8, 4, walk="flat")), (4096, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product,us / cuBLAS: 16:9/10,64:11/10,128:14/11,256:17/12,384:18/15,512:24/17,1024:43/31,2048:72/56,4096:126/112
    (H200, 2560, 4096): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 8, across=True)),
        (64, Tile(64, 32, 128, 4, 5)), (128, Tile(64, 64, 128, 4, 4)), (384, Tile(64, 64, 64, 4, 6)),
        (512, Tile(128, 128, 64, 4, 4, across=True)), (1024, Tile(128, 256, 64, 8, 3, walk="flat")),
        (4096, Tile(128, 128, 64, 8, 4, walk="flat")),
    )),
    # product,us / cuBLAS: 16:8/9,64:9/9,128:11/10,256:13/11,384:17/14,512:18/17,1024:30/30,2048:58/57,4096:116/112
    (H200, 4096, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 8, across=True)),
        (64, Tile(64, 32, 128, 4, 5)), (128, Tile(64, 64, 128, 4, 4)), (256, Tile(64, 64, 64, 4, 6)),
        (512, Tile(128, 128, 64, 4, 4)), (4096, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product,us / cuBLAS: 16:7/8,64:8/8,128:10/8,256:12/10,384:16/13,512:17/13,1024:29/23,2048:48/44,4096:86/86
    (H200, 3072, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 8, across=True)),
        (64, Tile(64, 32, 128, 4, 5)), (128, Tile(64, 64, 128, 4, 4)), (256, Tile(64, 64, 64, 4, 6)),
        (512, Tile(128, 128, 64, 4, 4, across=True)), (1024, Tile(128, 256, 64, 8, 3, walk="flat")),
        (2048, Tile(128, 128, 64, 8, 4, walk="flat")), (4096, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 16:5/7, 64:7/7, 128:8/7, 256:10/8, 384:10/9, 512:13/10, 1024:24/18, 2048:38/30, 4096:65/58
    (H200, 2560, 2048): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 8, across=True)),
        (64, Tile(64, 32, 128, 4, 5)), (128, Tile(64, 64, 128, 4, 4)), (384, Tile(64, 64, 64, 4, 6)),
        (512, Tile(128, 128, 64, 4, 4, across=True)), (1024, Tile(128, 256, 64, 8, 3, walk="flat")),
        (4096, Tile(128, 128, 64, 8, 4, walk="flat")),
    )),
    # product, us / cuBLAS: 16:6/7, 64:7/7, 128:8/8, 256:9/8, 384:12/9, 512:13/11, 1024:17/16, 2048:30/29, 4096:58/56
    (H200, 2048, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 8, across=True)),
        (64, Tile(64, 16, 128, 4, 6)), (128, Tile(64, 32, 128, 4, 5)), (256, Tile(64, 64, 128, 4, 4)),
        (512, Tile(64, 64, 64, 4, 6)), (1024, Tile(128, 128, 64, 8, 4)),
        (4096, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:41/39, 15360:217/205
    (H200, 6144, 768): MatmulPlan("tma", 1, (
        (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:19/19, 15360:104/103
    (H200, 768, 3072): MatmulPlan("tma", 1, (
        (2560, Tile(128, 128, 64, 8, 4)), (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:18/20, 15360:90/85
    (H200, 2304, 768): MatmulPlan("tma", 1, (
        (2560, Tile(128, 128, 64, 8, 4, walk="flat")), (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # gate, us / cuBLAS: 16:6/6, 64:7/7, 128:6/7, 256:6/7, 384:7/7, 512:7/7, 1024:0/7, 2048:0/7, 4096:16/12
    (H200, 256, 2560): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 8, across=True)),
        (512, Tile(64, 16, 128, 4, 6)), (4096, Tile(64, 64, 64, 4, 4)),
    )),
    # product, us / cuBLAS: 16:2/3, 64:3/3, 128:3/3, 256:4/4, 384:4/4, 512:4/4, 1024:7/6, 2048:10/8, 4096:15/13
    (H200, 2560, 256): MatmulPlan("tma", 1, (
        (16, Tile(16, 64, 128, 4, 3, across=True)),
        (64, Tile(64, 32, 128, 4, 3)), (384, Tile(64, 64, 128, 4, 3)), (512, Tile(64, 64, 64, 4, 4)),
        (2048, Tile(128, 128, 64, 4, 3)), (4096, Tile(128, 128, 64, 8, 4, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:8/7, 15360:32/31
    (H200, 768, 768): MatmulPlan("tma", 1, (
        (2560, Tile(64, 128, 64, 4, 4)), (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # pair, us / cuBLAS: 16:111/113, 64:120/117, 128:147/122, 256:206/167, 512:380/322, 1024:687/605, 2048:1304/1225
    (H200, 43008, 5376): MatmulPlan("tma", 1, (
        (16, Tile(16, 128, 128, 4, 5, across=True)),
        (64, Tile(64, 64, 64, 4, 4)), (128, Tile(64, 128, 64, 4, 4)), (512, Tile(128, 128, 64, 4, 3)),
        (2048, Tile(128, 256, 64, 8, 3)),
    )),
    # product, us / cuBLAS: 16:60/61, 64:63/65, 128:75/70, 256:124/91, 512:211/153, 1024:362/297, 2048:673/601
    (H200, 5376, 21504): MatmulPlan("tma", 4, (
        (16, Tile(16, 64, 128, 4, 3, apart=True, across=True)),
        (64, Tile(64, 64, 64, 4, 4, apart=True)), (128, Tile(128, 128, 64, 4, 3, apart=True)),
        (256, Tile(64, 128, 64, 4, 4)), (512, Tile(128, 256, 64, 8, 3, walk="flat")),
        (1024, Tile(128, 128, 64, 8, 4)), (2048, Tile(128, 256, 64, 8, 3)),
    )),
    # product, us / cuBLAS: 16:53/56, 64:54/52, 128:67/55, 256:107/74, 512:167/142, 1024:290/273, 2048:529/520
    (H200, 18432, 5376): MatmulPlan("tma", 1, (
        (16, Tile(16, 128, 128, 4, 3, across=True)),
        (64, Tile(64, 64, 64, 4, 4)), (128, Tile(128, 128, 64, 4, 3)), (512, Tile(128, 128, 64, 8, 4)),
        (2048, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 16:46/48, 64:46/47, 128:51/49, 256:69/67, 512:121/123, 1024:232/237, 2048:497/464
    (H200, 16384, 5376): MatmulPlan("tma", 1, (
        (16, Tile(16, 128, 64, 8, 6, across=True)),
        (64, Tile(64, 64, 128, 4, 3)), (128, Tile(64, 128, 64, 4, 4)), (256, Tile(128, 128, 64, 4, 3)),
        (1024, Tile(128, 256, 64, 8, 3, walk="flat")), (2048, Tile(128, 128, 64, 4, 3)),
    )),
    # product, us / cuBLAS: 16:48/48, 64:49/52, 128:60/58, 256:95/76, 512:164/123, 1024:281/232, 2048:518/462
    (H200, 5376, 16384): MatmulPlan("tma", 4, (
        (16, Tile(16, 64, 128, 4, 3, apart=True, across=True)),
        (64, Tile(64, 64, 64, 4, 4, apart=True)), (128, Tile(128, 128, 64, 4, 3, apart=True)),
        (256, Tile(64, 128, 64, 4, 4)), (512, Tile(128, 256, 64, 8, 3)), (1024, Tile(128, 128, 64, 8, 4)),
        (2048, Tile(128, 256, 64, 8, 3)),
    )),
    # product, us / cuBLAS: 16:27/29, 64:28/30, 128:34/27, 256:52/38, 512:87/61, 1024:151/116, 2048:266/231
    (H200, 5376, 8192): MatmulPlan("tma", 4, (
        (16, Tile(16, 64, 64, 4, 6, apart=True, across=True)),
        (64, Tile(64, 64, 64, 4, 4, apart=True)), (128, Tile(128, 128, 64, 4, 3, apart=True)),
        (256, Tile(64, 128, 64, 4, 4)), (512, Tile(128, 256, 64, 8, 3)), (1024, Tile(128, 128, 64, 8, 4)),
        (2048, Tile(128, 256, 64, 8, 3)),
    )),
    # product, us / cuBLAS: 2560:83/72, 15360:432/401
    (H200, 8608, 1152): MatmulPlan("tma", 1, (
        (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:46/43, 15360:243/217
    (H200, 1152, 4304): MatmulPlan("tma", 1, (
        (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:37/35, 15360:181/167
    (H200, 3456, 1152): MatmulPlan("tma", 1, (
        (2560, Tile(128, 128, 64, 4, 3)), (15360, Tile(128, 256, 64, 8, 3, walk="flat")),
    )),
    # product, us / cuBLAS: 2560:15/14, 15360:71/67
    (H200, 1152, 1152): MatmulPlan("tma", 1, (
        (2560, Tile(128, 128, 64, 4, 3)), (15360, Tile(128, 128, 64, 8, 4, walk="flat")),
    )),
}
# fmt: on
