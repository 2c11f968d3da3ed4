// A GLM node trains two mini-batches of logistic regression; the testbench is the switch of a job of one worker.
`timescale 1ns / 1ps

module glm_tb;
    `include "glm_settings.vh"
    `include "glm_node.vh"
    `include "glm_node_instance.vh"

    reg clk = 0, rst = 1;
    always #2 clk = !clk;
    integer cycle = 0, n, lane;
    always @(posedge clk) cycle <= cycle + 1;

    host host (
        .clk(clk), .awaddr(axil_awaddr), .awprot(axil_awprot), .awvalid(axil_awvalid), .awready(axil_awready),
        .wdata(axil_wdata), .wstrb(axil_wstrb), .wvalid(axil_wvalid), .wready(axil_wready), .bresp(axil_bresp),
        .bvalid(axil_bvalid), .bready(axil_bready), .araddr(axil_araddr), .arprot(axil_arprot),
        .arvalid(axil_arvalid), .arready(axil_arready), .rdata(axil_rdata), .rresp(axil_rresp),
        .rvalid(axil_rvalid), .rready(axil_rready)
    );
    axi_memory #(.WIDTH(32), .ADDRESS(64), .FILE("glm_samples0.hex")) samples0 (
        .clk(clk), .arid(samples0_arid), .araddr(samples0_araddr), .arlen(samples0_arlen), .arsize(samples0_arsize),
        .arburst(samples0_arburst), .arvalid(samples0_arvalid), .arready(samples0_arready), .rid(samples0_rid),
        .rdata(samples0_rdata), .rresp(samples0_rresp), .rlast(samples0_rlast), .rvalid(samples0_rvalid),
        .rready(samples0_rready), .awvalid(1'b0), .wvalid(1'b0), .bready(1'b1)
    );
    axi_memory #(.WIDTH(32), .ADDRESS(64), .FILE("glm_samples1.hex")) samples1 (
        .clk(clk), .arid(samples1_arid), .araddr(samples1_araddr), .arlen(samples1_arlen), .arsize(samples1_arsize),
        .arburst(samples1_arburst), .arvalid(samples1_arvalid), .arready(samples1_arready), .rid(samples1_rid),
        .rdata(samples1_rdata), .rresp(samples1_rresp), .rlast(samples1_rlast), .rvalid(samples1_rvalid),
        .rready(samples1_rready), .awvalid(1'b0), .wvalid(1'b0), .bready(1'b1)
    );
    axi_memory #(.WIDTH(256), .ADDRESS(64), .FILE("glm_labels.hex")) labels (
        .clk(clk), .arid(labels_arid), .araddr(labels_araddr), .arlen(labels_arlen), .arsize(labels_arsize),
        .arburst(labels_arburst), .arvalid(labels_arvalid), .arready(labels_arready), .rid(labels_rid),
        .rdata(labels_rdata), .rresp(labels_rresp), .rlast(labels_rlast), .rvalid(labels_rvalid),
        .rready(labels_rready), .awvalid(1'b0), .wvalid(1'b0), .bready(1'b1)
    );

    // The switch of a job of one worker: the sum of all PAs is the PA. AGG (kind 0) becomes RESULT (1), and ACK (2)
    // becomes CONFIRM (3), with the switch as source and the node as destination.
    localparam [47:0] NODE = 48'h02_00_00_00_00_01, SWITCH = 48'h02_00_00_00_01_00;
    wire [95:0] addresses = {NODE, SWITCH};
    reg [7:0] beat = 0;
    reg [63:0] answer;
    always @* begin
        answer = mac_tx_tdata;
        for (lane = 0; lane < 8; lane = lane + 1)  // bits 7…0 are the first byte
            if (8 * beat + lane < 12) answer[8*lane+:8] = addresses[8*(11-8*beat-lane)+:8];
        if (beat == 1) answer[55:48] = mac_tx_tdata[55:48] + 1;  // byte 14: version and kind
    end
    assign mac_rx_tdata = answer, mac_rx_tkeep = mac_tx_tkeep, mac_rx_tlast = mac_tx_tlast, mac_rx_tuser = 0;
    assign mac_rx_tvalid = mac_tx_tvalid, mac_tx_tready = mac_rx_tready;
    always @(posedge clk) if (mac_tx_tvalid && mac_tx_tready) beat <= mac_tx_tlast ? 0 : beat + 1;

    reg [31:0] expected[0:WEIGHTS-1];
    initial begin
        $readmemh("glm_model.hex", expected);
        repeat (4) @(negedge clk);
        rst = 0;
        host.expect_word(GLM_NODE_ID_OFFSET, GLM_NODE_ID_RESET);
        host.expect_word(GLM_NODE_VERSION_OFFSET, GLM_NODE_VERSION_RESET);
        host.write(GLM_NODE_CONTROL_OFFSET, GLM_NODE_CONTROL_RESET_TRANSPORT_MASK);
        host.write(GLM_NODE_TRAINING_OFFSET, PLANES << GLM_NODE_TRAINING_PLANES_SHIFT
                   | LOSS << GLM_NODE_TRAINING_LOSS_SHIFT | CLAMP_BITS << GLM_NODE_TRAINING_CLAMP_BITS_SHIFT);
        host.write(GLM_NODE_RATE_OFFSET, MANTISSA << GLM_NODE_RATE_MANTISSA_SHIFT
                   | SHIFT << GLM_NODE_RATE_SHIFT_SHIFT);
        host.write(GLM_NODE_CHUNKS_OFFSET, CHUNKS);
        host.write(GLM_NODE_MINI_BATCH_OFFSET, MINI_BATCH);
        host.write(GLM_NODE_EPOCH_OFFSET, EPOCH);
        host.write(GLM_NODE_EPOCHS_OFFSET, 1);
        host.write(GLM_NODE_JOB_OFFSET, 1 << GLM_NODE_JOB_JOB_ID_SHIFT | 2 << GLM_NODE_JOB_LOG2_SLOTS_SHIFT);
        host.write(GLM_NODE_MEMBER_OFFSET, 1);
        host.write(GLM_NODE_TIMEOUT_OFFSET, 5000);
        host.write64(GLM_NODE_OWN_MAC_OFFSET, NODE);
        host.write64(GLM_NODE_SWITCH_MAC_OFFSET, SWITCH);
        for (n = 0; n < GLM_NODE_SAMPLE_ADDRESS_COUNT; n = n + 1)
            host.write64(GLM_NODE_SAMPLE_ADDRESS_OFFSET + n * GLM_NODE_SAMPLE_ADDRESS_STRIDE, 0);
        host.write64(GLM_NODE_LABEL_ADDRESS_OFFSET, 0);
        host.write(GLM_NODE_CONTROL_OFFSET, GLM_NODE_CONTROL_CLEAR_MODEL_MASK | GLM_NODE_CONTROL_START_MASK);
        $display("cycle %0d: the run begins", cycle);
        host.poll(GLM_NODE_STATUS_OFFSET, GLM_NODE_STATUS_BUSY_MASK, 0);
        $display("cycle %0d: the model is trained", cycle);
        host.poll(GLM_NODE_STATUS_OFFSET, GLM_NODE_STATUS_IDLE_MASK, GLM_NODE_STATUS_IDLE_MASK);
        host.expect_word(GLM_NODE_STATUS_OFFSET, GLM_NODE_STATUS_IDLE_MASK);  // and not failed
        host.write(GLM_NODE_MODEL_ADDRESS_OFFSET, 0);
        for (n = 0; n < WEIGHTS; n = n + 1) host.expect_word(GLM_NODE_MODEL_DATA_OFFSET, expected[n]);
        samples0.report;
        labels.report;
        $display("PASS");
        $finish;
    end

    initial begin
        repeat (20000) @(posedge clk);
        $display("FAIL: 20,000 cycles have passed");
        $fatal;
    end
endmodule
