// A cluster node trains the network `tiny` on six images in memory: parameters are loaded, trained and dumped.
`timescale 1ns / 1ps

module cluster_tb;
    `include "cluster_settings.vh"
    `include "cluster_node.vh"
    `include "cluster_node_instance.vh"

    reg clk = 0, rst = 1;
    always #2 clk = !clk;
    integer cycle = 0, n;
    always @(posedge clk) cycle <= cycle + 1;

    host host (
        .clk(clk), .awaddr(axil_awaddr), .awprot(axil_awprot), .awvalid(axil_awvalid), .awready(axil_awready),
        .wdata(axil_wdata), .wstrb(axil_wstrb), .wvalid(axil_wvalid), .wready(axil_wready), .bresp(axil_bresp),
        .bvalid(axil_bvalid), .bready(axil_bready), .araddr(axil_araddr), .arprot(axil_arprot),
        .arvalid(axil_arvalid), .arready(axil_arready), .rdata(axil_rdata), .rresp(axil_rresp),
        .rvalid(axil_rvalid), .rready(axil_rready)
    );
    axi_memory #(.WIDTH(512), .FILE("cluster_memory.hex")) memory (
        .clk(clk), .arid(memory_arid), .araddr(memory_araddr), .arlen(memory_arlen), .arsize(memory_arsize),
        .arburst(memory_arburst), .arvalid(memory_arvalid), .arready(memory_arready), .rid(memory_rid),
        .rdata(memory_rdata), .rresp(memory_rresp), .rlast(memory_rlast), .rvalid(memory_rvalid),
        .rready(memory_rready), .awid(memory_awid), .awaddr(memory_awaddr), .awlen(memory_awlen),
        .awsize(memory_awsize), .awburst(memory_awburst), .awvalid(memory_awvalid), .awready(memory_awready),
        .wdata(memory_wdata), .wstrb(memory_wstrb), .wlast(memory_wlast), .wvalid(memory_wvalid),
        .wready(memory_wready), .bid(memory_bid), .bresp(memory_bresp), .bvalid(memory_bvalid),
        .bready(memory_bready)
    );

    task carry_out(input [1:0] mode);  // start a job and wait for its end
        begin
            host.write(CLUSTER_NODE_MODE_OFFSET, mode);
            host.write(CLUSTER_NODE_CONTROL_OFFSET, CLUSTER_NODE_CONTROL_START_MASK);
            host.poll(CLUSTER_NODE_STATUS_OFFSET, CLUSTER_NODE_STATUS_RUNNING_MASK, 0);
            host.expect_word(CLUSTER_NODE_STATUS_OFFSET, 0);  // neither failed nor refused, all values finite
            $display("cycle %0d: the job of mode %0d has ended", cycle, mode);
        end
    endtask

    reg [511:0] expected[0:WORDS-1];
    initial begin
        $readmemh("cluster_expected.hex", expected);
        repeat (4) @(negedge clk);
        rst = 0;
        host.expect_word(CLUSTER_NODE_ID_OFFSET, CLUSTER_NODE_ID_RESET);
        host.expect_word(CLUSTER_NODE_VERSION_OFFSET, CLUSTER_NODE_VERSION_RESET);
        host.write64(CLUSTER_NODE_PARAMETERS_OFFSET, PARAMETERS);
        host.write64(CLUSTER_NODE_IMAGES_OFFSET, IMAGES);
        host.write64(CLUSTER_NODE_LABELS_OFFSET, LABELS);
        host.write64(CLUSTER_NODE_RESULTS_OFFSET, RESULTS);
        host.write(CLUSTER_NODE_FRAMES_OFFSET, FRAMES);
        host.write(CLUSTER_NODE_BATCH_OFFSET, BATCH);
        host.write(CLUSTER_NODE_ETA_OFFSET, ETA);
        host.write(CLUSTER_NODE_LAST_ETA_OFFSET, LAST_ETA);
        host.write(CLUSTER_NODE_MOMENTUM_OFFSET, MOMENTUM);
        host.write(CLUSTER_NODE_TIMED_LAST_OFFSET, BATCH - 1);
        carry_out(2);  // load
        carry_out(1);  // train
        carry_out(3);  // dump
        for (n = 0; n < WORDS; n = n + 1)
            if ((n < PARAMETERS_END / 64 || n >= RESULTS / 64) && memory.words[n] != expected[n]) begin
                $display("FAIL: word %0d is %h, not %h", n, memory.words[n], expected[n]);
                $fatal;
            end
        memory.report;
        $display("PASS");
        $finish;
    end

    initial begin
        repeat (20000) @(posedge clk);
        $display("FAIL: 20,000 cycles have passed");
        $fatal;
    end
endmodule
